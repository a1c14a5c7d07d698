"""Hypothesis strategies: tables of any schema, written in several batches of several tasks under any properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TimeTransform, Transform

from tests.readers.lake import Lake, StreamedTable
from tests.writer.random_tables import Case, cases

NAMES = ("a-b", "1x", "é", "日本", "😀", "a b", "UPPER", "%2F", 'q"q', "select", "_", "a/b", "-", "x" * 300)
"""Column and field names: most of them Avro forbids."""

PROPERTIES: Mapping[str, Sequence[str]] = {
    "write.target-file-size-bytes": ("1", "1500", "536870912"),
    "write.parquet.row-group-size-bytes": ("1", "150", "134217728"),
    "write.parquet.compression-codec": ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"),
    "write.metadata.metrics.default": ("truncate(16)", "truncate(1)", "full", "counts", "none"),
    "write.object-storage.enabled": ("false", "true"),
    "commit.manifest.min-count-to-merge": ("2", "100"),
}


@dataclass(frozen=True)
class Story:
    """A table's rows and how they come: for every batch and task, the numbers of the rows that it writes."""

    case: Case
    batches: tuple[tuple[tuple[int, ...], ...], ...]
    properties: Mapping[str, str]

    def tell(self, lake: Lake) -> StreamedTable:
        """Write all of it."""
        table = lake.new_table(self.case.schema, self.case.spec, self.properties)
        table.buffer_bytes, table.open_files = 200, 1
        rows = self.case.arrow
        for tasks in self.batches:
            table.write([in_pieces(rows.take(pa.array(numbers, pa.int64()))) for numbers in tasks], rows.schema)
        return table


def in_pieces(rows: pa.Table) -> list[pa.RecordBatch]:
    """Arrow batches of a few rows, as a task gets them."""
    return list(rows.combine_chunks().to_batches(max_chunksize=3))


@st.composite
def stories(draw: st.DrawFn, case: st.SearchStrategy[Case] | None = None) -> Story:
    told = draw(cases() if case is None else case)
    names = draw(st.permutations(NAMES))
    batches, tasks = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    places = draw(
        st.lists(
            st.tuples(st.integers(0, batches - 1), st.integers(0, tasks - 1)),
            min_size=len(told.rows),
            max_size=len(told.rows),
        )
    )
    cut = tuple(
        tuple(tuple(number for number, place in enumerate(places) if place == (batch, task)) for task in range(tasks))
        for batch in range(batches)
    )
    properties = {name: draw(st.sampled_from(choices)) for name, choices in PROPERTIES.items()}
    return Story(renamed(told, names), cut, properties)


def renamed(case: Case, names: Sequence[str]) -> Case:
    """The same case under other names, at every level; the column that numbers the rows keeps its own."""
    new = {f"{letter}{index}": name for letter in "cs" for index, name in enumerate(names)}
    schema = Schema.model_validate(_in_schema(case.schema.model_dump(mode="json", by_alias=True), new))
    fields = (
        PartitionField(part.source_id, part.field_id, part.transform, f"{index}-{name}")
        for index, (part, name) in enumerate(zip(_not_redundant(case.spec), names, strict=False))
    )
    return Case(schema, PartitionSpec(*fields), [_in_row(row, new) for row in case.rows])


def partition_kind(transform: Transform[Any, Any]) -> str:
    """What there may be one of over a column: Iceberg refuses a second as redundant."""
    return "time" if isinstance(transform, TimeTransform) else str(transform)


def _not_redundant(spec: PartitionSpec) -> list[PartitionField]:
    return list({(part.source_id, partition_kind(part.transform)): part for part in spec.fields}.values())


def _in_schema(part: Any, new: Mapping[str, str]) -> Any:
    if isinstance(part, dict):
        return {key: new.get(value, value) if key == "name" else _in_schema(value, new) for key, value in part.items()}
    return [_in_schema(value, new) for value in part] if isinstance(part, list) else part


def _in_row(part: Any, new: Mapping[str, str]) -> Any:
    """A row's value with its structs' fields renamed; lists and the pairs of maps are walked."""
    if isinstance(part, dict):
        return {new.get(key, key): _in_row(value, new) for key, value in part.items()}
    return type(part)(_in_row(value, new) for value in part) if type(part) in (list, tuple) else part
