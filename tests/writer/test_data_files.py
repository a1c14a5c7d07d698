"""The files of a task: parts of even size, no more files open than allowed, and the types of the table."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, UUIDType

from lakesink.parquet.files import DataFiles
from lakesink.parquet.parquet import ZSTD_LEVEL, FileFormat, parquet_writer
from lakesink.parquet.statistics import columns
from lakesink.rows.plan import ParquetOptions
from lakesink.rows.schema import arrow_schema, leaves, parse_schema
from lakesink_protocol.change import ContentFile
from testkit.tasks import column, footer, plan_for, rows_of

NUMBERS = column(LongType())


def data_files(schema: Schema, folder: Path, **options: Any) -> tuple[DataFiles, list[ContentFile]]:
    """The files, and a list that gets each closed one."""
    plan, closed = plan_for(schema, folder, **options), list[ContentFile]()
    parsed = parse_schema(plan.schema_json)
    form = FileFormat(plan, arrow_schema(parsed, annotated=True), columns(leaves(parsed), {}))
    return DataFiles(form, (), 3, closed.append), closed


@pytest.mark.parametrize(("rows", "parts"), [(1, [1]), (250, [250]), (251, [126, 125]), (1_000, [250] * 4)])
def test_row_groups_are_the_fewest_even_parts_within_their_limit(rows: int, parts: list[int], tmp_path: Path) -> None:
    files, closed = data_files(NUMBERS, tmp_path, parquet=ParquetOptions(row_group_size_bytes=2_000))
    table = pa.table({"c": range(rows)})
    files.write((), table)
    files.close()
    [file] = closed
    found = footer(file)
    assert [found.row_group(index).num_rows for index in range(found.num_row_groups)] == parts
    assert (file.record_count, rows_of(closed)) == (rows, table.to_pylist())


def test_a_file_is_closed_when_it_is_full(tmp_path: Path) -> None:
    parquet = ParquetOptions(row_group_size_bytes=80, compression_codec="uncompressed")
    files, closed = data_files(NUMBERS, tmp_path, parquet=parquet, target_file_size_bytes=1)
    files.write((), pa.table({"c": range(3)}))
    assert not files.is_open(())
    assert [row["c"] for row in rows_of(closed)] == [0, 1, 2]
    assert len(closed) == 3, "a row group has a row at least, and fills this file"


def test_the_file_that_waited_longest_makes_room_for_another(tmp_path: Path) -> None:
    files, closed = data_files(NUMBERS, tmp_path, open_files=2)
    for letter in (b"a", b"b", b"a", b"c"):
        files.write((letter,), pa.table({"c": [1]}))
    assert [(file.partition, file.record_count) for file in closed] == [((b"b",), 1)]
    assert [files.is_open((letter,)) for letter in (b"a", b"b", b"c")] == [True, False, True]
    files.close()
    assert [(file.partition, file.record_count) for file in closed[1:]] == [((b"a",), 2), ((b"c",), 1)]


def test_what_is_abandoned_is_removed_and_what_is_closed_stays(tmp_path: Path) -> None:
    files, closed = data_files(NUMBERS, tmp_path)
    files.write((b"a",), pa.table({"c": [1]}))
    files.finish((b"a",))
    files.write((b"b",), pa.table({"c": [2]}))
    files.abandon()
    assert [str(path) for path in tmp_path.rglob("*.parquet")] == [file.path for file in closed]
    assert rows_of(closed) == [{"c": 1}]


def test_a_uuid_has_the_type_of_a_uuid_beside_a_column_of_another_type(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", UUIDType()), NestedField(2, "n", LongType()))
    files, closed = data_files(schema, tmp_path)
    plain = arrow_schema(parse_schema(schema.model_dump_json()))
    files.write((), pa.table([pa.array([b"0123456789abcdef"], plain.field("id").type), pa.array([7])], plain))
    files.close()
    assert [str(part.logical_type) for part in pq.ParquetFile(closed[0].path).schema] == ["UUID", "None"]


@pytest.mark.parametrize(
    ("codec", "level", "given"),
    [("zstd", None, ZSTD_LEVEL), ("zstd", 9, 9), ("gzip", None, None), ("gzip", 9, 9), ("snappy", 9, None)],
)
def test_only_zstd_has_a_level_of_its_own_and_only_codecs_with_levels_get_one(
    codec: str, level: int | None, given: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(pq, "ParquetWriter", lambda *_args, **options: asked.update(options))
    options = ParquetOptions(compression_codec=codec, compression_level=level)
    parquet_writer(None, pa.schema([("c", pa.int64())]), options)
    assert (asked["compression"], asked["compression_level"]) == (codec, given)


def test_every_leaf_but_floats_has_statistics_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(pq, "ParquetWriter", lambda *_args, **options: asked.update(options))
    inner = pa.struct([("x", pa.int64()), ("f", pa.float64())])
    kinds = {
        "n": pa.int64(),
        "s": inner,
        "l": pa.list_(inner),
        "b": pa.large_list(inner),
        "m": pa.map_("string", inner),
    }
    parquet_writer(None, pa.schema(list(kinds.items())), ParquetOptions())
    within = ["s.x", "l.list.element.x", "b.list.element.x", "m.key_value.key", "m.key_value.value.x"]
    assert asked["write_statistics"] == ["n", *within]


def test_row_groups_of_a_file_fill_it_by_what_they_take_on_disk(tmp_path: Path) -> None:
    parquet = ParquetOptions(row_group_size_bytes=8_000, compression_codec="uncompressed")
    files, closed = data_files(NUMBERS, tmp_path, parquet=parquet, target_file_size_bytes=40_000)
    table = pa.table({"c": [number * 2**40 for number in range(10_000)]})  # eight bytes each, in memory and on disk
    for start in range(0, 10_000, 1_000):
        files.write((), table.slice(start, 1_000))
    files.close()
    assert all(36_000 <= file.file_size_bytes <= 44_000 for file in closed[:-1])
    assert all(footer(file).num_row_groups <= 6 for file in closed)
