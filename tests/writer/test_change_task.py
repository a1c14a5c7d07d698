"""A task writes the newest change of each key, a file of keys, and votes only for what is closed and whole."""

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, NestedField, StringType, UUIDType

from lakesink.keys import newest
from lakesink.keys.keys_file import is_keys_file
from lakesink.parquet.side_file import read_side_file
from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.rows.plan import DELETED, ChangesPlan, OnMalformed, WritePlan
from lakesink.task.task import check_columns
from lakesink_protocol.errors import WriteError
from lakesink_protocol.receipt import Receipt
from lakesink_protocol.row_changes import DELETES, SUPERSEDED, Mode, Operation
from testkit.examples import examples
from testkit.tasks import plan_for, rows_of, spec_of, write, writer_of

ORDERS = Schema(
    NestedField(3, "order_id", LongType(), required=True),
    NestedField(5, "updated_at", LongType()),
    NestedField(7, "city", StringType(), required=True),
    NestedField(9, "note", StringType()),
    identifier_field_ids=[3],
)
SOFT = Schema(*ORDERS.fields, NestedField(11, DELETED, BooleanType()), identifier_field_ids=[3])
CHANGES = ChangesPlan(Mode.CHANGES, (3,), (5,))
ROWS = pa.schema([("note", pa.string()), ("order_id", pa.int32()), ("updated_at", pa.int64()), ("city", pa.string())])
Row = dict[str, Any]


def row(order_id: int | None, updated_at: int | None, city: str | None = "Bonn", note: str | None = None) -> Row:
    return {"order_id": order_id, "updated_at": updated_at, "city": city, "note": note}


def upserts(*rows: Row) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), ROWS)


def marked(*rows: tuple[Row, bool | None]) -> pa.RecordBatch:
    marks = pa.array([mark for _, mark in rows], pa.bool_())
    return upserts(*(found for found, _ in rows)).append_column(DELETE_MARK, marks)


def plan(folder: Path, changes: ChangesPlan = CHANGES, schema: Schema = ORDERS, **overrides: Any) -> WritePlan:
    return plan_for(schema, folder, overrides.pop("spec", spec_of()), changes=changes, **overrides)


def refused(found: WritePlan, *batches: pa.RecordBatch) -> WriteError:
    with pytest.raises(WriteError) as error:
        write(found, batches)
    assert len(str(error.value).partition("\n")[0]) < 200
    assert [path for path in Path(found.data_location).rglob("*") if path.is_file()] == []
    return error.value


def keys_of(receipt: Receipt) -> list[Row]:
    """The rows of a file of keys, which is the one that the receipt describes."""
    if receipt.keys is None:
        return []
    data = Path(receipt.keys.path).read_bytes()
    assert (receipt.keys.size_bytes, receipt.keys.sha256) == (len(data), sha256(data).hexdigest())
    rows = [found for batch in read_side_file(pa.BufferReader(data)) for found in batch.to_pylist()]
    assert receipt.keys.rows == len(rows) == len({found["k3"] for found in rows})
    assert receipt.keys.rows == receipt.changed[DELETES] + sum(file.record_count for file in receipt.files)
    return rows


def key(order_id: int, updated_at: int, operation: Operation = Operation.UPSERT, *position: int) -> Row:
    place, offset = position or (None, None)
    return {"k3": order_id, "s5": updated_at, "op": operation.value, "place": place, "offset": offset}


def test_upserts_are_written_once_a_key_with_their_keys(tmp_path: Path) -> None:
    first, second, last = row(1, 10), row(2, 10, "Köln"), row(1, 11, "Mainz", "moved")
    receipt = write(plan(tmp_path), [upserts(first, second), upserts(last, first)], 4)
    assert rows_of(receipt.files) == [second, last]
    assert keys_of(receipt) == [key(2, 10), key(1, 11)]
    assert (receipt.rows, receipt.changed, receipt.task) == (4, {SUPERSEDED: 2}, 4)
    assert receipt.keys is not None
    assert is_keys_file(receipt.keys.path, str(tmp_path), "events-7", 4)
    assert not is_keys_file(receipt.keys.path, str(tmp_path), "events-7", 5)
    assert not is_keys_file(receipt.keys.path, str(tmp_path), "events-8", 4)
    assert not is_keys_file(receipt.keys.path, f"{tmp_path}/data", "events-7", 4)


def test_the_columns_of_a_file_of_keys_have_ids_and_types_of_the_table(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(2, "b", UUIDType(), required=True),
        NestedField(1, "a", StringType(), required=True),
        NestedField(4, "s", LongType()),
    )
    batch = pa.RecordBatch.from_pylist([{"a": "x\0", "b": "00000000-0000-0000-0000-0000000000ff", "s": 2**63 - 1}])
    receipt = write(plan(tmp_path, ChangesPlan(Mode.UPSERT, (1, 2), (4,)), schema), [batch])
    assert receipt.keys is not None
    [found] = read_side_file(pa.BufferReader(Path(receipt.keys.path).read_bytes()))
    types = [pa.string(), pa.binary(16), pa.int64(), pa.int8(), pa.int64(), pa.int64()]
    assert [(one.name, one.type) for one in found.schema] == list(
        zip(["k1", "k2", "s4", "op", "place", "offset"], types, strict=True)
    )
    assert list(found.to_pylist()[0].values()) == ["x\0", b"\0" * 15 + b"\xff", 2**63 - 1, 0, None, None]


def test_a_delete_needs_only_key_and_sequence_and_is_in_no_data_file(tmp_path: Path) -> None:
    kept, gone = row(2, 10), row(1, 11, None)
    receipt = write(plan(tmp_path), [marked((row(1, 10), False), (kept, False)), marked((gone, True))])
    assert rows_of(receipt.files) == [kept]
    assert keys_of(receipt) == [key(2, 10), key(1, 11, Operation.DELETE)]
    assert (receipt.rows, receipt.changed) == (3, {SUPERSEDED: 1, DELETES: 1})


def test_a_task_of_deletes_writes_only_keys(tmp_path: Path) -> None:
    receipt = write(plan(tmp_path), [marked((row(1, 11, None), True))])
    assert (receipt.files, receipt.changed) == ((), {DELETES: 1})
    assert keys_of(receipt) == [key(1, 11, Operation.DELETE)]


def test_an_upsert_after_a_delete_counts(tmp_path: Path) -> None:
    again = row(1, 12)
    receipt = write(plan(tmp_path), [marked((again, False), (row(1, 11, None), True))])
    assert rows_of(receipt.files) == [again]
    assert keys_of(receipt) == [key(1, 12)]
    assert receipt.changed == {SUPERSEDED: 1}


def test_an_upsert_needs_every_required_column(tmp_path: Path) -> None:
    assert refused(plan(tmp_path), marked((row(1, 11, None), False))).code == "LAKESINK_NULL_IN_REQUIRED"


def test_soft_deletes_are_rows_with_a_mark(tmp_path: Path) -> None:
    soft = replace(CHANGES, soft_deletes=True)
    receipt = write(plan(tmp_path, soft, SOFT), [marked((row(1, 10), False), (row(2, 11), True), (row(1, 9), True))])
    assert rows_of(receipt.files) == [row(1, 10) | {DELETED: False}, row(2, 11) | {DELETED: True}]
    assert keys_of(receipt) == [key(1, 10), key(2, 11)]
    assert receipt.changed == {SUPERSEDED: 1}
    error = refused(plan(tmp_path / "other", soft, SOFT), marked((row(1, 11, None), True)))
    assert error.code == "LAKESINK_NULL_IN_REQUIRED"


def test_excepted_columns_are_not_stored(tmp_path: Path) -> None:
    batch = upserts(row(1, 10)).append_column("OP", pa.array(["u"])).append_column("source", pa.array([7]))
    changes = replace(CHANGES, except_columns=("op", "source"))
    assert rows_of(write(plan(tmp_path, changes), [batch]).files) == [row(1, 10)]
    assert refused(plan(tmp_path / "other"), batch).code == "LAKESINK_SCHEMA_MISMATCH"


@pytest.mark.parametrize("place", [0, 7_000])
def test_a_null_in_the_key_names_column_count_and_row(tmp_path: Path, place: int) -> None:
    before = upserts(*(row(number, 1) for number in range(place)))
    error = refused(plan(tmp_path), before, upserts(row(8_000, 1), row(None, 2), row(None, 3)))
    assert error.code == "LAKESINK_KEY_NULL"
    assert error.what == (
        f"Column 'order_id' of the key is NULL in at least 2 rows; the first is row {place + 2} of its task."
    )


@pytest.mark.parametrize(
    ("columns", "where"),
    [
        ({"partition": [2, 2], "offset": [8, 9]}, "partition 2, offset 9"),
        ({"file_path": ["file:///in/a", "file:///in/b"]}, "of file:///in/b"),
        ({"partition": ["p1", "p2"], "offset": [8, 9]}, "row 2 of its task"),
    ],
)
def test_a_null_in_the_key_is_named_by_its_source_if_the_rows_have_one(
    tmp_path: Path, columns: dict[str, list[Any]], where: str
) -> None:
    batch = upserts(row(1, 1), row(None, 2))
    for name, values in columns.items():
        batch = batch.append_column(name, pa.array(values))
    excepted = plan(tmp_path, replace(CHANGES, except_columns=tuple(columns)))
    assert refused(excepted, batch).what.endswith(f"the first is {where}.")


def test_a_null_in_the_sequence_is_refused_also_in_a_delete(tmp_path: Path) -> None:
    error = refused(plan(tmp_path), marked((row(1, None, None), True)))
    assert error.code == "LAKESINK_SEQUENCE_NULL"
    assert "'updated_at' of the sequence is NULL in at least 1 row" in error.what


def test_an_unknown_operation_is_refused_with_the_number_of_rows(tmp_path: Path) -> None:
    error = refused(plan(tmp_path), marked((row(1, 1), False)), marked((row(2, 1), None), (row(3, 1), None)))
    assert error.code == "LAKESINK_OPERATION_UNKNOWN"
    assert "at least 2 rows; the first is row 2 of its task" in error.what


def test_a_repeated_key_without_an_order_is_refused(tmp_path: Path) -> None:
    found = plan(tmp_path, replace(CHANGES, sequence=()))
    assert refused(found, upserts(row(1, 1)), upserts(row(1, 1))).code == "LAKESINK_KEY_TWICE"
    assert refused(found, marked((row(1, 1), False), (row(1, None, None), True))).code == "LAKESINK_KEY_TWICE"


@pytest.mark.parametrize("sequence", [(), CHANGES.sequence])
def test_keys_without_an_order_are_shown_only_if_the_query_wants_that(
    tmp_path: Path, sequence: tuple[int, ...]
) -> None:
    found = plan(tmp_path, replace(CHANGES, sequence=sequence))
    rows = [row(number, 1, note=note) for note in "ab" for number in (8, 7, 7 if note == "a" else 8)]
    assert refused(found, upserts(*rows)).details == ()
    assert refused(replace(found, show_values=True), upserts(*rows)).details == ("order_id=8", "order_id=7")


@pytest.mark.parametrize("sequence", [(), CHANGES.sequence])
@pytest.mark.parametrize(
    ("columns", "details"),
    [
        ({"file_path": ["file:///in/a", "file:///in/b", "file:///in/c"]}, ("one of them is of file:///in/c",)),
        ({"partition": [2, 2, 2], "offset": [7, 8, 9]}, ("one of them is partition 2, offset 9",)),
        ({"file_path": [None] * 3}, ()),
    ],
    ids=["file", "kafka", "unknown"],
)
def test_keys_without_an_order_are_named_by_their_source_if_the_table_has_it(
    tmp_path: Path, columns: dict[str, list[Any]], details: tuple[str, ...], sequence: tuple[int, ...]
) -> None:
    batch, fields = upserts(row(1, 1, note="a"), row(2, 1), row(1, 1, note="b")), list(ORDERS.fields)
    for number, (name, values) in enumerate(columns.items(), 90):
        is_file = name == "file_path"
        batch = batch.append_column(name, pa.array(values, pa.string() if is_file else pa.int64()))
        fields.append(NestedField(number, name, StringType() if is_file else LongType()))
    found = plan(tmp_path, replace(CHANGES, sequence=sequence), Schema(*fields, identifier_field_ids=[3]))
    assert refused(found, batch.slice(0, 1), batch.slice(1)).details == details


@pytest.mark.parametrize("missing", ["order_id", "updated_at"])
def test_rows_without_a_column_of_key_or_sequence_are_refused_before_the_job(tmp_path: Path, missing: str) -> None:
    batch = upserts(row(1, 1)).drop_columns([missing])
    with pytest.raises(WriteError) as error:
        check_columns(batch.schema, plan(tmp_path))
    assert error.value.code == "LAKESINK_SCHEMA_MISMATCH"
    assert repr(missing) in error.value.what
    check_columns(marked((row(1, 1), True)).schema, plan(tmp_path))


def test_a_row_that_fails_the_batch_leaves_no_file(tmp_path: Path) -> None:
    named = Expected("named", OnUnmet.FAIL)
    batch = upserts(row(1, 1), row(2, 1)).append_column(named.mark, pa.array([True, False]))
    receipt = write(plan(tmp_path), [batch], expected=[named])
    assert (receipt.refused, receipt.rows, receipt.keys, receipt.files) == (True, 2, None, ())
    assert receipt.quality.unmet == {"named": 1}
    assert list(tmp_path.iterdir()) == []


def test_a_task_without_rows_leaves_no_trace(tmp_path: Path) -> None:
    receipt = write(plan(tmp_path / "data"), [upserts()], 3)
    assert (receipt.task, receipt.rows, receipt.files, receipt.keys, receipt.changes_by_key) == (3, 0, (), None, False)
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_fails_removes_its_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lakesink.keys.keys_file.KeysFileWriter.close", fail)
    with pytest.raises(KeyboardInterrupt):
        write(plan(tmp_path), [upserts(row(1, 1))])
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [
        ".parquet"
    ]  # closed, and referenced nowhere


def test_a_writer_is_clustered_by_its_key_unless_rows_are_documents(tmp_path: Path) -> None:
    assert writer_of(plan(tmp_path)).clustered_by == ((("order_id",), "identity"),)
    assert writer_of(plan(tmp_path, decode="json")).clustered_by == ()
    writer = writer_of(plan(tmp_path))
    assert pickle.loads(pickle.dumps(writer)) == writer  # noqa: S301 - the test's own


MESSAGES = pa.schema(
    [("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
)


def messages(*found: tuple[str | None, str | None, int | None, int | None]) -> pa.RecordBatch:
    values = [None if text is None else text.encode() for text, *_ in found]
    others = [list(column) for column in zip(*(rest for _, *rest in found), strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(one, kind.type) for one, kind in zip([values, *others], MESSAGES, strict=True)], schema=MESSAGES
    )


def document(order_id: int | None, city: str, updated_at: int = 1) -> str:
    return json.dumps({"order_id": order_id, "updated_at": updated_at, "city": city, "note": None})


def test_of_documents_without_a_sequence_the_greatest_offset_counts(tmp_path: Path) -> None:
    found = plan(tmp_path, ChangesPlan(Mode.UPSERT, (3,)), decode="json")
    batches = [
        messages((document(1, "new"), "t", 0, 9), (document(2, "only"), "t", 1, 3)),
        messages((document(1, "old"), "t", 0, 8)),
    ]
    receipt = write(found, batches)
    assert [(one["order_id"], one["city"]) for one in rows_of(receipt.files)] == [(1, "new"), (2, "only")]
    places = [(one["place"] % 2**32, one["offset"]) for one in keys_of(receipt)]
    assert places == [(0, 9), (1, 3)]
    assert (receipt.rows, receipt.changed[SUPERSEDED]) == (3, 1)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (("t", 1, 8), "KEY_TWICE"),
        (("u", 0, 8), "KEY_TWICE"),
        (("t", None, 8), "KEY_TWICE"),
        (("t", 0, None), "KEY_TWICE"),
    ],
    ids=["partition", "topic", "unknown partition", "unknown offset"],
)
def test_offsets_of_two_places_are_not_compared(
    tmp_path: Path, other: tuple[str, int | None, int | None], code: str
) -> None:
    found = plan(tmp_path, ChangesPlan(Mode.UPSERT, (3,)), decode="json")
    error = refused(found, messages((document(1, "a"), "t", 0, 9), (document(1, "b"), *other)))
    assert error.code == f"LAKESINK_{code}"


@pytest.mark.parametrize(("name", "values"), [("partition", ["p1"]), ("offset", [1.5]), ("topic", [{"a": 1}])])
def test_a_column_that_cannot_be_kafka_s_leaves_the_place_of_a_change_unknown(
    tmp_path: Path, name: str, values: list[Any]
) -> None:
    batch = messages((document(1, "a"), "t", 0, 9))
    batch = batch.set_column(batch.schema.get_field_index(name), name, pa.array(values))
    [key] = keys_of(write(plan(tmp_path, ChangesPlan(Mode.UPSERT, (3,)), decode="json"), [batch]))
    assert (key["place"], key["offset"]) == (None, None)


def test_documents_of_a_sequence_need_no_offsets(tmp_path: Path) -> None:
    batch = messages((document(1, "old", 1), "t", 0, 9), (document(1, "new", 2), "t", 1, 3)).select(["value"])
    receipt = write(plan(tmp_path, replace(CHANGES, mode=Mode.UPSERT), decode="json"), [batch])
    assert [one["city"] for one in rows_of(receipt.files)] == ["new"]


def test_a_null_key_of_a_document_is_named_by_its_offset(tmp_path: Path) -> None:
    schema = Schema(*(replace_required(one) for one in ORDERS.fields))
    found = plan(tmp_path, replace(CHANGES, mode=Mode.UPSERT), schema, decode="json")
    error = refused(found, messages((document(1, "a"), "t", 2, 8), (document(None, "b"), "t", 2, 9)))
    assert error.code == "LAKESINK_KEY_NULL"
    assert "the first is partition 2, offset 9" in error.what


def replace_required(found: NestedField) -> NestedField:
    return NestedField(found.field_id, found.name, found.field_type, required=False)


def test_a_malformed_document_refuses_the_batch(tmp_path: Path) -> None:
    found = plan(tmp_path, replace(CHANGES, mode=Mode.UPSERT), decode="json", on_malformed=OnMalformed.FAIL)
    receipt = write(found, [messages((document(1, "a"), "t", 2, 8), ("{", "t", 2, 9))])
    assert (receipt.refused, receipt.malformed, receipt.rows, receipt.keys) == (True, 1, 2, None)
    assert receipt.misfits[0].place == "topic t, partition 2, offset 9"
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class Arrived:
    """One row that arrives."""

    found: Row
    deletes: bool


@st.composite
def arrivals(draw: st.DrawFn) -> list[list[Arrived]]:
    """Batches of rows; each has a sequence of its own."""
    parts = st.tuples(st.integers(0, 5), st.sampled_from(["a", "b\0", ""]), st.booleans())
    batches = draw(st.lists(st.lists(parts, min_size=1, max_size=6), max_size=5))
    sequences = iter(draw(st.permutations(range(sum(map(len, batches))))))
    return [
        [Arrived(row(number, next(sequences), None if deletes else city), deletes) for number, city, deletes in batch]
        for batch in batches
    ]


@examples(25)
@given(batches=arrivals(), partitioned=st.booleans(), smallest=st.sampled_from([1, 2**40]))
def test_what_a_task_writes_is_what_a_dictionary_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: Sequence[Sequence[Arrived]],
    partitioned: bool,  # noqa: FBT001 - drawn
    smallest: int,
) -> None:
    monkeypatch.setattr(newest, "SMALLEST_COMPACTION", smallest)
    spec = spec_of("identity", source_ids=(7,)) if partitioned else spec_of()
    sent = [marked(*((one.found, one.deletes) for one in batch)) for batch in batches]
    receipt = write(plan(tmp_path, spec=spec), sent)
    by_key = {
        one.found["order_id"]: one
        for one in sorted((one for batch in batches for one in batch), key=lambda one: one.found["updated_at"])
    }
    stored = {number: one.found for number, one in by_key.items() if not one.deletes}
    assert {found["order_id"]: found for found in rows_of(receipt.files)} == stored
    expected = [
        key(number, one.found["updated_at"], Operation.DELETE if one.deletes else Operation.UPSERT)
        for number, one in by_key.items()
    ]
    assert sorted(keys_of(receipt), key=lambda found: found["k3"]) == sorted(expected, key=lambda found: found["k3"])
    arrived = sum(map(len, batches))
    assert (receipt.rows, receipt.changed[DELETES]) == (arrived, len(by_key) - len(stored))
    assert receipt.changed[SUPERSEDED] == arrived - len(by_key)
