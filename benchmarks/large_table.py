"""A table of many rows whose data files are made once, and kept in ``.bench``: each run makes a table of them anew.

The files are those of `benchmarks.upserts`, with field ids. A table takes them as they are, with the bounds of their
keys, so it is there within seconds. Runs write their own files elsewhere: what is kept never changes.
"""

import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from benchmarks.upserts import write_rows
from proof.provenance import ROOT

FOLDER = ROOT / ".bench"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "customer", StringType()),
    NestedField(3, "quantity", LongType()),
    NestedField(4, "price", DecimalType(12, 2)),
    NestedField(5, "ordered_at", TimestamptzType()),
    NestedField(6, "ordered_on", DateType()),
    NestedField(7, "urgent", BooleanType()),
    NestedField(8, "version", LongType()),
    identifier_field_ids=[1],
)
FIELD_IDS = ", ".join(f"{field.name}: {field.field_id}" for field in SCHEMA.fields)
COLUMNS = (
    "id long, customer string, quantity long, price decimal(12, 2), ordered_at timestamp, ordered_on date,"
    " urgent boolean, version long"
)
"""The rows of changes, in Spark's words."""


@dataclass(frozen=True, slots=True)
class LargeFiles:
    """Data files of so many rows, with keys from 0 on, in the order of their keys.

    Attributes:
        paths: One for each file, with as many rows as the others.
    """

    rows: int
    paths: Sequence[Path]

    @classmethod
    def made(cls, rows: int, files: int, say: Callable[[str], None]) -> "LargeFiles":
        """The kept files; those that are missing are written now."""
        folder, each = FOLDER / f"rows-{rows}-in-{files}", rows // files
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{number:03}.parquet" for number in range(files)]
        for number, path in enumerate(paths):
            if not path.exists():
                hidden = folder / f".{path.name}"
                ids = f"SELECT range AS id FROM range({number * each}, {(number + 1) * each})"
                write_rows(hidden, ids, 0, options=f", FIELD_IDS {{{FIELD_IDS}}}, COMPRESSION zstd")
                hidden.rename(path)
                say(f"{number + 1} of {files} files of {each:,} rows are written")
        return cls(each * files, paths)

    def table(self, catalog: Catalog, name: str) -> Table:
        """A new table of these files."""
        table = catalog.create_table(name, SCHEMA, properties={"format-version": "2"})
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for number, path in enumerate(self.paths):
                append.append_data_file(self._data_file(number, path))
        return catalog.load_table(name)

    def _data_file(self, number: int, path: Path) -> DataFile:
        each = self.rows // len(self.paths)
        if pq.read_metadata(path).num_rows != each:
            raise ValueError(f"{path} does not have {each} rows: remove it")
        file = DataFile.from_args(
            file_path=path.as_uri(),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=each,
            file_size_in_bytes=path.stat().st_size,
            lower_bounds={1: struct.pack("<q", number * each)},
            upper_bounds={1: struct.pack("<q", (number + 1) * each - 1)},
        )
        file.spec_id = 0
        return file


@dataclass(frozen=True, slots=True)
class RandomChanges:
    """Files of changes of random rows, one batch each; one change in a hundred is of a new key."""

    folder: Path
    rows: int
    changes: int

    def write(self, number: int) -> Path:
        """The file of a batch, outside of the source."""
        path = self.folder / f"changes-{number:03}.parquet"
        old = f"(hash(range * 1000 + {number}) % {self.rows})::BIGINT"
        new = f"{self.rows} + {number} * {self.changes} + range"
        keys = f"SELECT DISTINCT CASE WHEN range % 100 = 0 THEN {new} ELSE {old} END AS id FROM range({self.changes})"
        write_rows(path, keys, number + 1)
        return path

    def arrive(self, path: Path, source: Path) -> None:
        """The stream sees the file whole."""
        hidden = source / f".{path.name}"
        shutil.copyfile(path, hidden)
        hidden.rename(source / path.name)
