"""`lakesink audit --keys`: one live row for each key, at any snapshot, for every type that can be a key."""

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakesink_tools.audit import key_scan as keys_module
from lakesink_tools.audit.key_proof import KeyProof, KeyQuestion
from lakesink_tools.audit.key_scan import prove_keys
from testkit.builders import Lake, Stream
from testkit.maintenance import branch_off
from testkit.upserts import KEYED, Upserts
from tests.audit.deletes import delete_by_equality
from tests.audit.terminal import Run, found, refused, terminal
from tests.audit.test_upserts import fill

JSON = ("--output", "json")
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "id_bucket"))


@pytest.fixture(params=[PartitionSpec(), BY_BUCKET], ids=["unpartitioned", "by bucket"])
def keyed(tmp_path: Path, request: pytest.FixtureRequest) -> Upserts:
    return Upserts.make(tmp_path, request.param)


@pytest.fixture
def run(keyed: Upserts, monkeypatch: pytest.MonkeyPatch) -> Run:
    return terminal(keyed.lake, monkeypatch)


def insert(lake: Lake, *rows: tuple[int, str]) -> None:
    """As another writer does who knows nothing of the key."""
    table = lake.table()
    columns = dict(zip(("id", "name"), map(list, zip(*rows, strict=True)), strict=True))
    table.append(pa.table(columns, schema=table.schema().as_arrow()))


def test_after_every_batch_each_key_of_the_dictionary_has_one_row(keyed: Upserts, run: Run) -> None:
    batches: list[tuple[dict[int, str], list[int]]] = [
        (dict.fromkeys(range(20), "a"), []),
        (dict.fromkeys(range(10, 30), "b"), [1, 2, 3]),
        ({}, [4, 5, 99]),
        ({1: "again", 29: "c"}, []),
    ]
    expected = {}
    for batch_id, (upserts, deletes) in enumerate(batches):
        snapshot_id = keyed.run(batch_id, upserts, deletes)
        expected[snapshot_id] = dict(keyed.rows)
        assert keyed.live() == keyed.rows
    for snapshot_id, rows in expected.items():
        document = found(run("audit", "--keys", "--at", snapshot_id, *JSON))
        assert document["well"] is True
        assert document["keys"] == {
            "snapshot_id": snapshot_id,
            "columns": ["id"],
            "rows": len(rows),
            "keys": len(rows),
            "repeated": 0,
            "surplus": 0,
            "nulls": 0,
            "files": [],
            "values": None,
        }
    line = f"keys of snapshot {snapshot_id}: 26 live rows, 26 keys (id), one row each"
    assert line in run("audit", "--keys").stdout


def test_late_and_superseded_rows_are_no_second_rows(keyed: Upserts, run: Run) -> None:
    fill(keyed)
    assert keyed.live() == keyed.rows
    assert found(run("audit", "--keys", *JSON))["keys"]["keys"] == len(keyed.rows)


def test_a_key_that_another_writer_inserted_again_is_found_with_its_files_and_without_its_value(
    keyed: Upserts, run: Run
) -> None:
    keyed.run(0, {770_077: "a", 2: "b", 3: "c"})
    before = keyed.lake.head().snapshot_id
    insert(keyed.lake, (770_077, "x"), (4, "y"))
    insert(keyed.lake, (770_077, "z"), (3, "z"))
    result = run("audit", "--keys")
    assert result.exit_code == 1
    assert "[KEY_REPEATED] 2 of 4 keys have 3 rows too many, in file:" in result.stdout
    assert "7 live rows, 4 keys (id), 2 with several rows" in result.stdout
    assert "770077" not in result.stdout
    document = found(run("audit", "--keys", *JSON), 1)
    rows = {task.file.file_path for task in keyed.lake.table().scan().plan_files()}
    [finding] = document["findings"]
    assert set(finding["items"]) <= rows
    assert sum(file["rows"] for file in document["keys"]["files"]) == 5
    assert document["keys"]["values"] is None
    assert found(run("audit", "--keys", "--at", before, *JSON))["keys"]["repeated"] == 0
    shown = run("audit", "--keys", "--show-values").stdout
    assert "  id=770077, rows=3\n  id=3, rows=2\n" in shown
    assert found(run("audit", "--keys", "--show-values", *JSON), 1)["keys"]["values"] == [
        {"id": 770_077, "rows": 3},
        {"id": 3, "rows": 2},
    ]


def test_branches_and_tags_are_proved_by_name(keyed: Upserts, run: Run) -> None:
    keyed.run(0, {1: "a"})
    branch_off(keyed.lake, "staged")
    keyed.lake.table().manage_snapshots().create_tag(keyed.lake.head().snapshot_id, "monday").commit()
    insert(keyed.lake, (1, "again"))
    assert found(run("audit", "--keys", *JSON), 1)["keys"]["repeated"] == 1
    for name in ("staged", "monday"):
        assert found(run("audit", "--keys", "--at", name, *JSON))["keys"]["rows"] == 1


def test_a_table_without_a_snapshot_has_no_key_twice(keyed: Upserts) -> None:
    assert prove_keys(keyed.lake.table(), KeyQuestion()) == KeyProof(None, ("id",), 0, 0, 0, 0, 0)


def test_a_bulk_append_before_the_stream_is_proved_by_the_columns_of_the_later_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.make(tmp_path)
    run, stream = terminal(lake, monkeypatch), Stream(lake)
    stream.filled(3)
    error = refused(run("audit", "--keys", *JSON))
    assert (error["code"], error["action"]) == ("LAKESINK_OPTION_INVALID", "Name its columns: --key order_id.")
    both = ("--key", "batch", "--key", "position")
    assert "9 live rows, 9 keys (batch, position), one row each" in run("audit", "--keys", *both).stdout
    assert "9 live rows, 3 keys (batch), 3 with several rows" in run("audit", "--keys", "--key", "batch").stdout


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--key", "id"), "--key, --at and --show-values go with --keys."),
        (("--at", "main"), "--key, --at and --show-values go with --keys."),
        (("--keys", "--key", "nme"), "There is no column 'nme' to be a key."),
        (("--keys", "--at", "7"), "The table has no branch, tag or snapshot '7'."),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    keyed: Upserts, run: Run, options: tuple[str, ...], what: str
) -> None:
    keyed.run(0, {1: "a"})
    error = refused(run("audit", *options, *JSON))
    assert (error["code"], error["what"]) == ("LAKESINK_OPTION_INVALID", what)


def test_equality_deletes_cannot_be_applied_and_nothing_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    delete_by_equality(lake, 0)
    error = refused(terminal(lake, monkeypatch)("audit", "--keys", "--key", "batch", *JSON))
    assert error["code"] == "LAKESINK_DELETES_UNSUPPORTED"


MICROSECONDS = 86_400_000_000
KINDS: list[tuple[IcebergType, Sequence[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), [-(2**31), -1, 0, 2**31 - 1]),
    (LongType(), [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1]),
    (StringType(), ["", "a", "a\0", "a\0b", "\0", "é", "e\u0301", "A", " a", "🦆", "x" * 100_000, "NULL"]),
    (BinaryType(), [b"", b"\0", b"\0\0", b"a", b"\xff\xfe", b"\\x00"]),
    (FixedType(3), [b"\0\0\0", b"\0\0\1", b"abc", b"\xff\xff\xff"]),
    (UUIDType(), [uuid.UUID(int=number).bytes for number in (0, 1, 2**64, 2**127, 2**128 - 1)]),
    (DecimalType(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0), Decimal(10**37)]),
    (DecimalType(9, 2), [Decimal("0.01"), Decimal("-0.01"), Decimal("9999999.99")]),
    (DateType(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    (TimeType(), [time(0), time(23, 59, 59, 999_999)]),
    (TimestampType(), [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]),  # noqa: DTZ001 - has no zone
    (TimestamptzType(), [datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda part: str(part) if not isinstance(part, list) else "")
def test_equal_keys_are_those_of_equal_values_of_every_type_and_nothing_else(
    tmp_path: Path, kind: IcebergType, values: Sequence[Any]
) -> None:
    schema = Schema(NestedField(1, "at", kind, required=True), identifier_field_ids=[1])
    lake = Lake.make(tmp_path, schema=schema)
    arrow = lake.table().schema().as_arrow()
    lake.table().append(pa.table([pa.array(values, storage(arrow))], schema=plain(arrow)).cast(arrow))
    assert prove_keys(lake.table(), KeyQuestion()).repeated == 0
    again = list(values)[: len(values) // 2]
    lake.table().append(pa.table([pa.array([*again, *again], storage(arrow))], schema=plain(arrow)).cast(arrow))
    proof = prove_keys(lake.table(), KeyQuestion(show_values=True))
    assert (proof.rows, proof.keys, proof.repeated) == (len(values) + 2 * len(again), len(values), len(again))
    assert proof.values is not None
    shown = Counter(dict(zip(python(proof.values.column("at")), proof.values.column("rows").to_pylist(), strict=True)))
    assert shown == Counter(dict.fromkeys(again, 3))


def storage(schema: pa.Schema) -> pa.DataType:
    kind = schema.field(0).type
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field("at", storage(schema), nullable=False)])


def python(column: pa.ChunkedArray) -> list[Any]:
    return [value.bytes if isinstance(value, uuid.UUID) else value for value in column.to_pylist()]


@pytest.mark.parametrize("number", [-(2**31), 2**31 - 1])
def test_days_and_moments_beyond_the_calendar_are_keys_like_others(tmp_path: Path, number: int) -> None:
    fields = NestedField(1, "day", DateType(), required=True), NestedField(2, "at", TimestampType(), required=True)
    lake = Lake.make(tmp_path, schema=Schema(*fields, identifier_field_ids=[1, 2]))
    moments = [number, -(2**63), 2**63 - 1, 2**63 - 2]
    columns = [pa.array([number] * 4, pa.int32()).view(pa.date32()), pa.array(moments).view(pa.timestamp("us"))]
    rows = pa.table(columns, schema=schema_to_pyarrow(lake.table().schema()))
    append_as_file(lake, rows)
    assert prove_keys(lake.table(), KeyQuestion()).keys == 4
    append_as_file(lake, rows.slice(1, 1))
    assert prove_keys(lake.table(), KeyQuestion()).repeated == 1


def append_as_file(lake: Lake, rows: pa.Table) -> None:
    """PyIceberg's own append cannot state the bounds of such values."""
    path = lake.folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(rows, path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    with lake.table().transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def test_a_null_belongs_to_no_key_and_is_found(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "line", LongType()))
    lake = Lake.make(tmp_path, schema=schema)
    lake.table().append(pa.table({"id": [1, 1, None, None, 2], "line": [1, 2, 1, 1, None]}))
    proof = prove_keys(lake.table(), KeyQuestion(("id", "line")))
    assert (proof.rows, proof.keys, proof.nulls, proof.repeated) == (5, 2, 3, 0)
    assert [finding.code.name for finding in proof.findings()] == ["KEY_NULL"]


def test_a_renamed_and_widened_key_is_the_same_key(tmp_path: Path) -> None:
    lake = Lake.make(
        tmp_path, schema=Schema(NestedField(1, "id", IntegerType(), required=True), identifier_field_ids=[1])
    )
    lake.table().append(pa.table([pa.array([1, 2], pa.int32())], schema=lake.table().schema().as_arrow()))
    with lake.table().update_schema() as update:
        update.update_column("id", LongType())
        update.rename_column("id", "number")
    lake.table().append(pa.table([pa.array([2, 2**40])], schema=lake.table().schema().as_arrow()))
    proof = prove_keys(lake.table(), KeyQuestion())
    assert (proof.columns, proof.keys, proof.repeated) == (("number",), 3, 1)


def test_a_floating_number_is_no_key(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, schema=Schema(NestedField(1, "id", DoubleType())))
    with pytest.raises(Exception, match="cannot be a key: it is double"):
        prove_keys(lake.table(), KeyQuestion(("id",)))


def test_more_keys_than_fit_into_memory_are_counted_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "_MEMORY", "40MB")
    lake = Lake.make(tmp_path, schema=KEYED)
    most = 1_000_000
    schema = lake.table().schema().as_arrow()
    for part in range(2):
        ids = pa.array(range(part * most // 2, (part + 1) * most // 2))
        lake.table().append(pa.table([ids, pa.nulls(len(ids), schema.field(1).type)], schema=schema))
    insert(lake, (most - 1, "again"), (most, "new"))
    proof = prove_keys(lake.table(), KeyQuestion())
    assert (proof.rows, proof.keys, proof.repeated, proof.surplus) == (most + 2, most + 1, 1, 1)
