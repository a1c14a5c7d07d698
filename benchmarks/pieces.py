"""One small file, put before a stream again and again under a new number: cheap to deliver, and each row tells its own.

What is measured then is the sink, and not the program that makes its rows.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from benchmarks import data
from benchmarks.oracle import Fingerprint, fingerprint
from benchmarks.session import CATALOG, TABLE_PROPERTIES
from benchmarks.sinks import Target
from lakesink.spark.rows.frame_schema import arrow_schema
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table

PIECE = "piece"
"""The column that has the number of the file that a row came with."""

_PROPERTIES = {**TABLE_PROPERTIES, "write.distribution-mode": "none"}


@dataclass(frozen=True, slots=True)
class Pieces:
    """Rows of `data.LINEITEM`, the same in every piece but for its number.

    Attributes:
        content: The file.
        schema: Of its rows.
        rows: In it.
    """

    content: Path
    schema: StructType
    rows: int

    @classmethod
    def make(cls, spark: SparkSession, place: Path, rows: int) -> "Pieces":
        """Write the file under a folder that is not there yet."""
        place.mkdir(parents=True)
        content = place / "piece.parquet"
        data.write(content, data.LINEITEM.format(first=0, last=rows))
        return cls(content, spark.read.parquet(str(content)).schema, rows)

    def put(self, folder: Path, number: int) -> None:
        """Let a stream see one more: at once, for it is a link."""
        os.link(self.content, folder / f"{number:06}.parquet")

    def stream(self, spark: SparkSession, folder: Path, files_per_batch: int | None = None) -> DataFrame:
        """What is put into a folder, as a stream; all that there is in every batch, or so many files."""
        reader = spark.readStream.schema(self.schema)
        if files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", files_per_batch)
        number = sf.regexp_extract("_metadata.file_name", r"^(\d+)", 1).cast("int")
        return reader.parquet(str(folder)).select("*", number.alias(PIECE))

    def expected(self, numbers: Sequence[int]) -> Fingerprint:
        """What these pieces come to."""
        rows = data.LINEITEM.format(first=0, last=self.rows)
        return fingerprint(f"(select rows.*, {PIECE} from ({rows}) rows, unnest({list(numbers)}::int[]) all_({PIECE}))")


def create(target: Target, rows: DataFrame) -> None:
    """Make the table of a target, for the rows of a stream."""
    catalog = connect(CATALOG, target.properties)
    create_table(catalog, target.table, arrow_schema(rows.schema), properties=_PROPERTIES)
