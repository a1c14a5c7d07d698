"""A task puts changes aside that cannot be written: each is a dead letter, and the others are written as without it."""

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, NestedField, StringType

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.rows.letters import LETTERS
from lakesink.rows.plan import DELETED, JSON, ChangesPlan, OnMalformed
from lakesink.rows.schema import parse_schema
from lakesink.rows.side_rows import SidePlan
from lakesink.task.changelog import changelog_schema
from lakesink.task.task import ParquetTaskWriter
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.measures import DEAD_LETTERS
from lakesink_protocol.receipt import Receipt, decode
from lakesink_protocol.row_changes import DELETES, SUPERSEDED, Mode
from testkit.examples import examples
from testkit.tasks import plan_for, rows_of

FIELDS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "at", LongType()),
    NestedField(3, "city", StringType(), required=True),
)
ROWS = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("city", pa.binary()), (DELETE_MARK, pa.bool_())])
CHANGE = st.tuples(
    st.none() | st.integers(1, 4), st.booleans(), st.sampled_from([b"Bonn", None, b"\xff"]), st.none() | st.booleans()
)
Row = dict[str, Any]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    """The rows, whose texts may be no UTF-8."""
    found = pa.RecordBatch.from_pylist(rows, ROWS)
    return found.set_column(2, "city", found.column("city").view(pa.string()))


class Task:
    """One task with dead letters, and a changelog beside them."""

    def __init__(self, folder: Path, *, soft: bool = False, logs: bool = True, **options: Any) -> None:
        changes = ChangesPlan(Mode.CHANGES, (1,), (2,), soft_deletes=soft, has_changelog=logs)
        more = [NestedField(4, DELETED, BooleanType())] if soft else []
        quarantine: dict[str, Any] = {"on_malformed": OnMalformed.QUARANTINE, "changes": changes}
        plan = plan_for(Schema(*FIELDS, *more, identifier_field_ids=[1]), folder / "rows", **(quarantine | options))
        of_log = iceberg_schema(changelog_schema(parse_schema(plan.schema_json), changes))
        sides = [("letters", iceberg_schema(LETTERS), False), *([("log", of_log, True)] if logs else [])]
        self.plan = plan
        self.sides = tuple(
            SidePlan(name, SinkKey("events"), "uuid", "", plan_for(schema, folder / name), logs=is_log)
            for name, schema, is_log in sides
        )

    def write(self, rows: pa.RecordBatch, expected: tuple[Expected, ...] = ()) -> dict[str, Receipt]:
        writer = ParquetTaskWriter(self.plan, expected, self.sides)
        return {name: decode(one) for name, one in writer.receipts("t", writer.write(0, iter([rows]))).items()}


def why_not(row: Row, *, soft: bool) -> str:
    """The code of the error that a change would be; empty if it can be written."""
    if row[DELETE_MARK] is None:
        return "OPERATION_UNKNOWN"
    if row["id"] is None:
        return "KEY_NULL"
    if row["at"] is None:
        return "SEQUENCE_NULL"
    if row["city"] is None and (soft or not row[DELETE_MARK]):
        return "NULL_IN_REQUIRED"
    return "TEXT_INVALID" if row["city"] == b"\xff" else ""


def told_of(row: Row, why: str) -> tuple[Any, ...]:
    """What a dead letter says of a change."""
    operation = "unknown" if row[DELETE_MARK] is None else "delete" if row[DELETE_MARK] else "upsert"
    key, sequence = ({name: row[name]} if row[name] is not None else None for name in ("id", "at"))
    return why, row["city"] != b"\xff", operation, key, sequence


def told_by(letter: Row) -> tuple[Any, ...]:
    key, sequence = (letter[name] and json.loads(letter[name]) for name in ("row_key", "row_sequence"))
    return letter["reason"], letter["payload_bytes"] is None, letter["operation"], key, sequence


@pytest.mark.parametrize("soft", [False, True], ids=["hard deletes", "soft deletes"])
@examples(30)
@given(changes=st.lists(CHANGE, max_size=30))
def test_each_change_is_a_dead_letter_or_counts_in_its_table(tmp_path: Path, changes: list[Any], *, soft: bool) -> None:
    rows = [
        {"id": key, "at": at if has_sequence else None, "city": city, DELETE_MARK: mark}
        for at, (key, has_sequence, city, mark) in enumerate(changes)
    ]
    receipts = Task(tmp_path, soft=soft).write(batch_of(rows))
    reasons = {at: why for at, row in enumerate(rows) if (why := why_not(row, soft=soft))}
    letters = [told_by(one) for one in rows_of(receipts["letters"].files)]
    assert sorted(letters, key=str) == sorted((told_of(rows[at], why) for at, why in reasons.items()), key=str)
    good = [row for at, row in enumerate(rows) if at not in reasons]
    newest = {row["id"]: row for row in good}
    stored = sorted(key for key, row in newest.items() if soft or not row[DELETE_MARK])
    assert sorted(row["id"] for row in rows_of(receipts["t"].files)) == stored
    own = receipts["t"]
    assert (own.rows, own.quality.counts[DEAD_LETTERS]) == (len(rows), len(reasons))
    assert own.changed[SUPERSEDED] == len(good) - len(newest)
    assert own.changed[DELETES] == len(newest) - len(stored)
    logged = sorted((row["id"], row["at"], row["_operation"]) for row in rows_of(receipts["log"].files))
    assert logged == sorted((row["id"], row["at"], "delete" if row[DELETE_MARK] else "upsert") for row in good)


def test_a_document_whose_key_or_sequence_is_missing_is_put_aside_as_it_came(tmp_path: Path) -> None:
    documents = [
        {"id": 1, "at": 5, "city": "Bonn"},
        {"id": None, "at": 6, "city": "Rome"},
        {"id": 2, "city": "Oslo"},
        {"id": "?", "at": 7, "city": "Bern"},
        {"id": 1, "at": 8, "city": "Kiel"},
    ]
    values = pa.array([json.dumps(one) for one in documents])
    offsets = pa.array(range(len(documents)), pa.int64())
    rows = pa.RecordBatch.from_arrays(
        [values, pa.repeat(pa.scalar(0, pa.int32()), 5), offsets], ["value", "partition", "offset"]
    )
    receipts = Task(tmp_path, decode=JSON).write(rows)
    letters = sorted(rows_of(receipts["letters"].files), key=itemgetter("offset"))
    found = [(one["offset"], one["reason"], json.loads(one["payload"])) for one in letters]
    reasons = {1: "VALUE_MALFORMED", 2: "SEQUENCE_NULL", 3: "VALUE_MALFORMED"}
    assert found == [(at, reasons[at], documents[at]) for at in (1, 2, 3)]
    told = [(one["operation"], one["row_key"], one["row_sequence"]) for one in letters]
    assert told == [("upsert", None, '{"at":6}'), ("upsert", '{"id":2}', None), ("upsert", None, '{"at":7}')]
    assert rows_of(receipts["t"].files) == [documents[4]]
    assert [row["_source_offset"] for row in rows_of(receipts["log"].files)] == [0, 4]


def test_a_refused_batch_has_nothing_for_any_table(tmp_path: Path) -> None:
    expected = Expected("small", OnUnmet.FAIL)
    rows = batch_of(
        [
            {"id": 1, "at": 1, "city": b"Bonn", DELETE_MARK: False},
            {"id": None, "at": 2, "city": b"Rome", DELETE_MARK: True},
        ]
    ).append_column(expected.mark, pa.array([False, True]))
    receipts = Task(tmp_path).write(rows, (expected,))
    assert all(one.refused and not one.files for one in receipts.values())
    assert (receipts["letters"].rows, receipts["log"].rows) == (0, 0)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
