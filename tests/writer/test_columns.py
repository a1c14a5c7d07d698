"""Columns are matched by name and cast without loss, or refused with what helps; NULLs stay where they may be."""

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakesink.task.task import check_columns
from lakesink_catalog.spark_types import sql_type
from lakesink_protocol.errors import WriteError
from testkit.tasks import plan_for, rows_of, write

ONE_UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
NEW_YORK = "America/New_York"
BERLIN_SUMMER = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))


def schema_of(**columns: IcebergType | NestedField) -> Schema:
    return Schema(
        *(
            kind if isinstance(kind, NestedField) else NestedField(number, name, kind)
            for number, (name, kind) in enumerate(columns.items(), start=1)
        )
    )


def required(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id, name, kind, required=True)


def optional(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id, name, kind)


def list_of(field_id: int, kind: IcebergType) -> ListType:
    return ListType(field_id, kind, element_required=False)


def written_rows(
    schema: Schema, folder: Path, *columns: tuple[str, pa.Array], **overrides: Any
) -> list[dict[str, Any]]:
    names, arrays = zip(*columns, strict=True)
    batch = pa.RecordBatch.from_arrays(list(arrays), names=list(names))
    return rows_of(write(plan_for(schema, folder, **overrides), [batch]).files)


def refusal(schema: Schema, incoming: pa.Schema, **overrides: Any) -> WriteError:
    with pytest.raises(WriteError) as caught:
        check_columns(incoming, plan_for(schema, "/nowhere", **overrides))
    assert caught.value.code == "LAKESINK_SCHEMA_MISMATCH"
    return caught.value


LOSSLESS: list[tuple[pa.Array, IcebergType, Any]] = [
    (pa.array([7], pa.int8()), IntegerType(), 7),
    (pa.array([-7], pa.int16()), IntegerType(), -7),
    (pa.array([7], pa.uint16()), IntegerType(), 7),
    (pa.array([7], pa.int32()), LongType(), 7),
    (pa.array([4_294_967_295], pa.uint32()), LongType(), 4_294_967_295),
    (pa.array([0.1], pa.float32()), DoubleType(), pytest.approx(0.1, rel=1e-7)),
    (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), DecimalType(38, 2), Decimal("1.25")),
    (pa.array([Decimal("1.25")], pa.decimal256(5, 2)), DecimalType(9, 2), Decimal("1.25")),
    (pa.array([date(1969, 12, 31)]), DateType(), date(1969, 12, 31)),
    (pa.array([5_000], pa.time64("ns")), TimeType(), time(0, 0, 0, 5)),
    (pa.array([5], pa.time32("s")), TimeType(), time(0, 0, 5)),
    (pa.array([-1_000], pa.timestamp("ns")), TimestampType(), datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    (pa.array([1], pa.timestamp("s")), TimestampType(), datetime(1970, 1, 1, 0, 0, 1)),  # noqa: DTZ001
    (pa.array([BERLIN_SUMMER], pa.timestamp("us", NEW_YORK)), TimestamptzType(), BERLIN_SUMMER),
    (pa.array([BERLIN_SUMMER], pa.timestamp("ms", "+05:30")), TimestamptzType(), BERLIN_SUMMER),
    (pa.array(["é😀"], pa.large_string()), StringType(), "é😀"),
    (pa.array(["é😀"], pa.string_view()), StringType(), "é😀"),
    (pa.array(["a"]).dictionary_encode(), StringType(), "a"),
    (pa.array([b"\xff"], pa.large_binary()), BinaryType(), b"\xff"),
    (pa.array([b"abc"], pa.binary(3)), BinaryType(), b"abc"),
    (pa.array([b"abc"]), FixedType(3), b"abc"),
    (pa.array([str(ONE_UUID).upper()]), UUIDType(), ONE_UUID),
    (pa.array([ONE_UUID.bytes]), UUIDType(), ONE_UUID),
    (pa.array([ONE_UUID.bytes], pa.uuid()), UUIDType(), ONE_UUID),
]


@pytest.mark.parametrize(("array", "kind", "value"), LOSSLESS, ids=lambda part: str(getattr(part, "type", part)))
def test_a_lossless_cast_keeps_the_value_and_nulls(
    array: pa.Array, kind: IcebergType, value: Any, tmp_path: Path
) -> None:
    with_null = pa.concat_arrays([array, pa.nulls(1, array.type)])
    found = [row["c"] for row in written_rows(schema_of(c=kind), tmp_path, ("c", with_null))]
    assert found == [value, None]


LOSSY: list[tuple[pa.DataType, IcebergType]] = [
    (pa.int64(), IntegerType()),
    (pa.uint32(), IntegerType()),
    (pa.uint64(), LongType()),
    (pa.float64(), FloatType()),
    (pa.int32(), DoubleType()),
    (pa.float64(), LongType()),
    (pa.string(), IntegerType()),
    (pa.int32(), StringType()),
    (pa.bool_(), IntegerType()),
    (pa.int32(), BooleanType()),
    (pa.timestamp("us"), TimestamptzType()),
    (pa.timestamp("us", "UTC"), TimestampType()),
    (pa.date32(), TimestampType()),
    (pa.timestamp("us"), DateType()),
    (pa.decimal128(9, 3), DecimalType(9, 2)),
    (pa.decimal128(9, 2), DecimalType(9, 3)),
    (pa.decimal128(10, 2), DecimalType(9, 2)),
    (pa.int32(), DecimalType(9, 0)),
    (pa.string(), BinaryType()),
    (pa.binary(), StringType()),
    (pa.binary(4), FixedType(3)),
    (pa.binary(15), UUIDType()),
    (pa.duration("us"), LongType()),
    (pa.struct([("a", pa.int32())]), IntegerType()),
    (pa.int32(), ListType(9, IntegerType())),
    (pa.list_(pa.int64()), ListType(9, IntegerType())),
    (pa.list_(pa.int32()), MapType(8, IntegerType(), 9, IntegerType())),
    (pa.dictionary(pa.int32(), pa.int64()), IntegerType()),
]


@pytest.mark.parametrize(("incoming", "kind"), LOSSY, ids=str)
def test_a_lossy_cast_is_refused_with_the_column_and_both_types(incoming: pa.DataType, kind: IcebergType) -> None:
    message = str(refusal(schema_of(amount=kind), pa.schema([("amount", incoming)])))
    assert "'amount" in message
    parts = [incoming, *([incoming.value_type] if pa.types.is_list(incoming) else [])]
    assert any(f"is {sql_type(part)} in the query and " in message for part in parts)


@pytest.mark.parametrize(
    ("array", "kind", "told", "value"),
    [
        (
            pa.array([1_001], pa.timestamp("ns")),
            TimestampType(),
            "(TIMESTAMP_NTZ) cannot become TIMESTAMP_NTZ without loss",
            "1001",
        ),
        (
            pa.array([1_001], pa.timestamp("ns", NEW_YORK)),
            TimestamptzType(),
            "cannot become TIMESTAMP without loss.",
            "1001",
        ),
        (
            pa.array([2**62], pa.timestamp("s")),
            TimestampType(),
            "cannot become TIMESTAMP_NTZ without loss",
            "4611686018427387904",
        ),
        (pa.array([1], pa.time64("ns")), TimeType(), "(TIME) cannot become TIME without loss", "00:00:00.000000001"),
        (pa.array([b"ab"]), FixedType(3), "(BINARY) cannot become BINARY (fixed[3]) without loss", "ab"),
        (pa.array(["not-a-uuid"]), UUIDType(), "(STRING) cannot become STRING (uuid) without loss", "not-a-uuid"),
        (pa.array([f"{ONE_UUID}0"]), UUIDType(), "(STRING) cannot become STRING (uuid) without loss", ONE_UUID),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_exactly_is_refused_and_not_shown(
    array: pa.Array, kind: IcebergType, told: str, value: object, tmp_path: Path
) -> None:
    with pytest.raises(WriteError, match="LAKESINK_LOSSY_VALUE") as caught:
        written_rows(schema_of(c=kind), tmp_path, ("c", array))
    assert told in caught.value.what
    assert str(value) not in str(caught.value).replace("table", "")
    assert list(tmp_path.iterdir()) == []


def test_keys_of_a_map_that_become_one_are_refused_at_any_depth_and_equal_keys_of_two_maps_are_not(
    tmp_path: Path,
) -> None:
    lower, upper = str(ONE_UUID), str(ONE_UUID).upper()
    by_uuid = MapType(2, UUIDType(), 3, LongType(), value_required=False)
    by_text = pa.map_(pa.string(), pa.int64())
    apart = pa.array([[(lower, 1)], [(upper, 2)], None], by_text)
    assert [row["c"] for row in written_rows(schema_of(c=by_uuid), tmp_path / "apart", ("c", apart))] == [
        [(ONE_UUID, 1)],
        [(ONE_UUID, 2)],
        None,
    ]
    one = [(lower, 1), (upper, 2)]
    for kind, array in (
        (by_uuid, pa.array([None, one], by_text)),
        (ListType(4, by_uuid, element_required=False), pa.array([[[], one]], pa.list_(by_text))),
        (StructType(optional(4, "m", by_uuid)), pa.array([{"m": one}], pa.struct([("m", by_text)]))),
    ):
        with pytest.raises(WriteError, match="LAKESINK_LOSSY_VALUE") as caught:
            written_rows(schema_of(c=kind), tmp_path / "one", ("c", array))
        assert "has different STRING keys that are one STRING (uuid)" in caught.value.what
        assert lower not in str(caught.value)


def test_a_cast_that_is_asked_for_can_be_copied() -> None:
    refused = refusal(schema_of(paid_at=TimestampType()), pa.schema([("paid_at", pa.timestamp("us", "UTC"))]))
    assert "Column 'paid_at' is TIMESTAMP in the query and TIMESTAMP_NTZ in the table: a lossy cast." in str(refused)
    assert "CAST(paid_at AS TIMESTAMP_NTZ)" in str(refused)
    odd = refusal(schema_of(**{"odd name": LongType()}), pa.schema([("odd name", pa.string())]))
    assert "CAST(`odd name` AS BIGINT)" in str(odd)
    nested = refusal(schema_of(s=LongType()), pa.schema([("s", pa.struct([("a", pa.int32())]))]))
    assert "from STRUCT<a: INT> to BIGINT" in str(nested)
    assert "CAST" not in str(nested)


def test_columns_are_matched_by_name_in_any_order_and_case(tmp_path: Path) -> None:
    point = StructType(optional(11, "x", LongType()), optional(12, "Y", LongType()))
    incoming = pa.array([{"y": 2, "X": 1}], pa.struct([("y", pa.int32()), ("X", pa.int64())]))
    rows = written_rows(schema_of(Id=LongType(), p=point), tmp_path, ("P", incoming), ("ID", pa.array([5])))
    assert rows == [{"Id": 5, "p": {"x": 1, "Y": 2}}]


def test_case_counts_where_spark_says_so() -> None:
    assert "'ID'" in str(refusal(schema_of(Id=LongType()), pa.schema([("ID", pa.int64())]), case_sensitive=True))


def test_columns_that_differ_in_case_only_are_written_where_case_counts(tmp_path: Path) -> None:
    schema = schema_of(a=LongType(), A=LongType())
    columns = [("A", pa.array([1])), ("a", pa.array([2]))]
    assert written_rows(schema, tmp_path, *columns, case_sensitive=True) == [{"a": 2, "A": 1}]


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (schema_of(a=LongType()), pa.schema([("a", pa.int64()), ("A", pa.int64())])),
        (schema_of(a=LongType()), pa.schema([("a", pa.int64()), ("a", pa.int64())])),
        (schema_of(a=LongType(), A=LongType()), pa.schema([("a", pa.int64())])),
        (
            schema_of(s=StructType(optional(11, "a", LongType()))),
            pa.schema([("s", pa.struct([("a", pa.int64()), ("A", pa.int64())]))]),
        ),
    ],
)
def test_an_ambiguous_name_is_refused(table: Schema, rows: pa.Schema) -> None:
    error = refusal(table, rows)
    assert "the same name for Spark" in error.what
    assert 'format("lakesink") ignores the case of names' in error.action  # so a Spark setting would not help there


@pytest.mark.parametrize(
    ("table", "rows", "told"),
    [
        (schema_of(amount=LongType()), pa.schema([("amuont", pa.int64())]), ("'amuont'", "Did you mean 'amount'?")),
        (
            schema_of(s=StructType(optional(11, "street", StringType()))),
            pa.schema([("s", pa.struct([("stret", pa.string())]))]),
            ("'s.stret'", "Did you mean 'street'?"),
        ),
    ],
)
def test_an_unknown_column_is_refused_with_the_nearest_name(
    table: Schema, rows: pa.Schema, told: tuple[str, ...]
) -> None:
    message = str(refusal(table, rows))
    assert all(part in message for part in told)


def test_a_missing_optional_column_becomes_null_at_every_level(tmp_path: Path) -> None:
    inner = StructType(optional(11, "a", LongType()), optional(12, "b", list_of(13, StringType())))
    schema = schema_of(id=LongType(), s=inner, note=MapType(21, StringType(), 22, LongType()))
    incoming = pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())]))
    rows = written_rows(schema, tmp_path, ("id", pa.array([1, 2])), ("s", incoming))
    assert rows == [{"id": 1, "s": {"a": 1, "b": None}, "note": None}, {"id": 2, "s": None, "note": None}]


def test_a_missing_optional_struct_may_require_what_it_holds(tmp_path: Path) -> None:
    deep = StructType(required(13, "l", list_of(14, UUIDType())))
    wide = StructType(required(41, "m", MapType(42, StringType(), 43, LongType())), required(44, "t", deep))
    outer = StructType(optional(31, "q", wide), optional(32, "r", LongType()))
    schema = schema_of(id=LongType(), s=StructType(required(11, "k", LongType()), required(12, "t", deep)), p=outer)
    incoming = pa.array([{"r": 1}, None], pa.struct([("r", pa.int64())]))
    rows = written_rows(schema, tmp_path, ("id", pa.array([1, 2])), ("p", incoming))
    assert [(row["s"], row["p"]) for row in rows] == [(None, {"q": None, "r": 1}), (None, None)]


@pytest.mark.parametrize(
    ("schema", "incoming", "told"),
    [
        (schema_of(id=LongType(), k=required(9, "k", LongType())), pa.schema([("id", pa.int64())]), "'k'"),
        (
            schema_of(s=StructType(required(11, "k", LongType()), optional(12, "o", LongType()))),
            pa.schema([("s", pa.struct([("o", pa.int64())]))]),
            "'s.k'",
        ),
    ],
)
def test_a_missing_required_column_is_refused(schema: Schema, incoming: pa.Schema, told: str) -> None:
    what = refusal(schema, incoming).what
    assert told in what
    assert "missing" in what


REQUIRED_PARTS: list[tuple[IcebergType, pa.Array, str]] = [
    (
        StructType(required(11, "k", LongType())),
        pa.array([{"k": 1}, {"k": None}], pa.struct([("k", pa.int64())])),
        "'c.k'",
    ),
    (ListType(11, LongType(), element_required=True), pa.array([[1, None]], pa.list_(pa.int64())), "'c.element'"),
    (
        MapType(11, StringType(), 12, LongType(), value_required=True),
        pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
        "'c.value'",
    ),
    (
        ListType(11, StructType(required(12, "k", StructType(required(13, "z", LongType()))))),
        pa.array([[{"k": {"z": None}}]], pa.list_(pa.struct([("k", pa.struct([("z", pa.int64())]))]))),
        "'c.element.k.z'",
    ),
]


@pytest.mark.parametrize(("kind", "array", "told"), REQUIRED_PARTS, ids=[told for *_, told in REQUIRED_PARTS])
def test_a_null_in_a_required_part_is_refused_with_its_path(
    kind: IcebergType, array: pa.Array, told: str, tmp_path: Path
) -> None:
    with pytest.raises(WriteError, match="LAKESINK_NULL_IN_REQUIRED") as caught:
        written_rows(schema_of(c=kind), tmp_path, ("c", array))
    assert told in caught.value.what


def test_a_null_in_a_required_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="LAKESINK_NULL_IN_REQUIRED"):
        written_rows(schema_of(k=required(1, "k", LongType())), tmp_path, ("k", pa.array([1, None])))


HIDDEN: dict[str, tuple[IcebergType, pa.DataType, Any]] = {
    "long": (LongType(), pa.int64(), 1),
    "string": (StringType(), pa.string(), "x"),
    "uuid": (UUIDType(), pa.string(), str(ONE_UUID)),
    "struct": (StructType(required(21, "z", LongType())), pa.struct([("z", pa.int64())]), {"z": 1}),
    "list": (ListType(21, LongType(), element_required=True), pa.list_(pa.int64()), [1, 2]),
    "map": (
        MapType(21, StringType(), 22, LongType(), value_required=True),
        pa.map_(pa.string(), pa.int64()),
        [("a", 1)],
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("start", [0, 1])
def test_a_null_parent_hides_what_it_requires(name: str, start: int, tmp_path: Path) -> None:
    kind, arrow, value = HIDDEN[name]
    schema = schema_of(c=StructType(required(11, "k", kind)), l=list_of(12, StructType(required(13, "k", kind))))
    parents = pa.array([None, {"k": value}, None, {"k": value}], pa.struct([("k", arrow)])).slice(start)
    lists = pa.array([None, [{"k": value}, None], [], [None]], pa.list_(pa.struct([("k", arrow)]))).slice(start)
    rows = written_rows(schema, tmp_path, ("c", parents), ("l", lists))
    kept = ONE_UUID if name == "uuid" else value
    expected = [(None, None), ({"k": kept}, [{"k": kept}, None]), (None, []), ({"k": kept}, [None])][start:]
    assert [(row["c"], row["l"]) for row in rows] == expected


def test_values_that_lie_below_null_lists_and_outside_a_slice_are_neither_read_nor_written(tmp_path: Path) -> None:
    elements = pa.array(["bad", str(ONE_UUID), "bad", "bad"])
    offsets, validity = pa.array([0, 1, 2, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(bytes([0b1011]))
    lists = pa.Array.from_buffers(pa.list_(pa.string()), 4, [validity, offsets], children=[elements]).slice(1, 2)
    assert written_rows(schema_of(c=ListType(9, UUIDType())), tmp_path, ("c", lists)) == [
        {"c": [ONE_UUID]},
        {"c": None},
    ]


def test_field_ids_that_rows_bring_along_mean_nothing(tmp_path: Path) -> None:
    schema = schema_of(a=LongType(), b=LongType())
    swapped = pa.schema(
        [pa.field(n, pa.int64(), metadata={"PARQUET:field_id": i}) for n, i in (("a", "2"), ("b", "1"))]
    )
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], schema=swapped)
    receipt = write(plan_for(schema, tmp_path), [batch])
    assert rows_of(receipt.files) == [{"a": 1, "b": 2}]
    assert receipt.files[0].lower_bounds == {1: (1).to_bytes(8, "little"), 2: (2).to_bytes(8, "little")}


def test_a_schema_that_changes_between_batches_is_worked_out_again(tmp_path: Path) -> None:
    batches = [
        pa.RecordBatch.from_pydict({"a": pa.array([1], pa.int32())}),
        pa.RecordBatch.from_pydict({"b": pa.array(["x"]), "A": pa.array([2], pa.int64())}),
    ]
    receipt = write(plan_for(schema_of(a=LongType(), b=StringType()), tmp_path), batches)
    assert rows_of(receipt.files) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_an_instant_is_the_same_whatever_the_session_time_zone(tmp_path: Path) -> None:
    instant = datetime(2024, 3, 10, 7, 30, tzinfo=UTC)  # in the hour that New York skipped
    for zone in ("UTC", NEW_YORK, "Asia/Kathmandu"):
        array = pa.array([instant], pa.timestamp("us", zone))
        rows = written_rows(schema_of(t=TimestamptzType()), tmp_path, ("t", array))
        assert rows == [{"t": instant}]


def test_the_first_line_stays_short_however_long_names_and_types_are() -> None:
    long_type = pa.struct([(f"field_{number}", pa.string()) for number in range(200)])
    for table, rows in [
        (schema_of(**{"n" * 300: LongType()}), pa.schema([("n" * 300, long_type)])),
        (schema_of(a=LongType()), pa.schema([("m" * 300, long_type)])),
        (schema_of(a=LongType(), **{"n" * 300: required(2, "n" * 300, LongType())}), pa.schema([("a", pa.int64())])),
        (schema_of(**{"n" * 300: LongType()}), pa.schema([("n" * 300, pa.int64()), ("N" * 300, pa.int64())])),
    ]:
        assert len(str(refusal(table, rows)).splitlines()[0]) < 200
