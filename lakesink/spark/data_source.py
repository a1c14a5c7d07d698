"""``format("lakesink")`` as Spark knows it: the class that PySpark finds by itself, see `pyspark_lakesink`.

PySpark imports this module to look up data sources, and an error here would hide those of every other package too. So
it imports PySpark only, and the writers where a query needs them.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from lakesink.spark.source_tasks import BatchTask
    from lakesink.spark.source_writers import StreamWriter

NAME = "lakesink"


class LakesinkDataSource(DataSource):
    """The data source of one query. Spark creates a new object in every process and for every batch."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Always raises: the format is write-only."""
        from lakesink_protocol.errors import QueryError

        raise QueryError(
            "READ_UNSUPPORTED",
            'format("lakesink") only writes.',
            data="Nothing was read or written.",
            action="Read the table with Iceberg's own Spark catalog, Trino, DuckDB or PyIceberg.",
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        """The writer of one micro-batch."""
        return _writers().stream_writer(self.options, schema, overwrite=overwrite)  # type: ignore[no-any-return]

    def writer(self, schema: StructType, overwrite: bool) -> "BatchTask":
        """The writer of a batch write, already planned."""
        return _writers().batch_writer(self.options, schema, overwrite=overwrite)  # type: ignore[no-any-return]


def _writers() -> Any:
    try:
        from lakesink.spark import source_writers
    except ImportError as error:
        from lakesink_protocol.errors import QueryError

        raise QueryError(
            "EXECUTOR_PYTHON",
            f'The Python in which Spark plans format("lakesink") cannot import it: {error}.',
            data="Nothing was written.",
            action="Install lakesink with its dependencies in that Python (pip install), or point PYSPARK_PYTHON at a"
            " Python that has them.",
        ) from None
    return source_writers
