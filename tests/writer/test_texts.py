"""Text that is not UTF-8 is refused with its column and row, before a byte of it is in a file."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, MapType, NestedField, StringType, StructType

from lakesink.sinks.staged.parts import PartsWriter
from lakesink_protocol.errors import WriteError
from testkit.tasks import column, plan_for, rows_of, spec_of, write

TEXT = StringType()
BAD = b"caf\xe9"
CASES: dict[str, tuple[Any, Any, Any, str]] = {
    "plain": (TEXT, pa.string(), lambda text: text, "c"),
    "large": (TEXT, pa.large_string(), lambda text: text, "c"),
    "dictionary": (TEXT, pa.dictionary(pa.int32(), pa.string()), lambda text: text, "c"),
    "struct": (
        StructType(NestedField(2, "name", TEXT)),
        pa.struct([("name", pa.string())]),
        lambda text: {"name": text},
        "c.name",
    ),
    "list": (ListType(3, TEXT), pa.list_(pa.string()), lambda text: ["é", text], "c.element"),
    "map key": (
        MapType(4, TEXT, 5, IntegerType()),
        pa.map_(pa.string(), pa.int32()),
        lambda text: [(text, 1)],
        "c.key",
    ),
    "map value": (MapType(6, TEXT, 7, TEXT), pa.map_(pa.string(), pa.string()), lambda text: [("k", text)], "c.value"),
}


def as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in the place of text, to build what Spark sends."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(as_bytes(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(as_bytes(kind.key_type), as_bytes(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(as_bytes(kind.value_type))
    return {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind, kind)


def as_spark_sends(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.binary()).dictionary_encode().view(kind)
    if pa.types.is_nested(kind):
        return viewed(pa.array(values, as_bytes(kind)), kind)
    return pa.array(values, as_bytes(kind)).view(kind)


def viewed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        parts = [viewed(array.field(at), kind[at].type) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(
            array.offsets, viewed(array.keys, kind.key_type), viewed(array.items, kind.item_type)
        )
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, viewed(array.values, kind.value_type))
    return array.view(kind)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("row", [0, 1, 4, 6])
def test_text_that_is_not_utf_8_is_refused_by_column_and_row(
    case: tuple[Any, Any, Any, str], row: int, tmp_path: Path
) -> None:
    kind, arrow, put, path = case
    values = [put(BAD if at == row else "é".encode()) for at in range(7)]
    batches = [pa.RecordBatch.from_arrays([as_spark_sends(arrow, part)], ["c"]) for part in (values[:3], values[3:])]
    with pytest.raises(
        WriteError, match=f"'{path}' contains text that is not UTF-8, in row {row + 1} of its task"
    ) as refused:
        write(plan_for(column(kind), tmp_path), batches)
    assert refused.value.code == "LAKESINK_TEXT_INVALID"
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_text_of_every_kind_is_written_as_it_is(case: tuple[Any, Any, Any, str], tmp_path: Path) -> None:
    kind, arrow, put, _ = case
    values = [put(text.encode()) for text in ("", "é", "\U0001f600")]
    receipt = write(
        plan_for(column(kind), tmp_path), [pa.RecordBatch.from_arrays([as_spark_sends(arrow, values)], ["c"])]
    )
    assert len(rows_of(receipt.files)) == 3


def test_text_that_is_not_utf_8_makes_no_partition(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_arrays([as_spark_sends(pa.string(), [BAD])], ["c"])
    with pytest.raises(WriteError, match="'c' contains text that is not UTF-8"):
        write(plan_for(Schema(NestedField(1, "c", TEXT)), tmp_path, spec_of("identity")), [batch])


def test_no_part_of_a_directory_holds_text_that_is_not_utf_8(tmp_path: Path) -> None:
    writer = PartsWriter(str(tmp_path), "events-7", 7, "zstd", 1 << 20)
    batch = pa.RecordBatch.from_arrays([as_spark_sends(pa.list_(pa.string()), [[b"a"], [BAD]])], ["c"])
    with pytest.raises(
        WriteError, match=r"'c\.element' contains text that is not UTF-8, in row 2 of its task"
    ) as refused:
        writer.write(0, iter([batch]))
    assert refused.value.code == "LAKESINK_TEXT_INVALID"
