"""A whole change stream becomes the very table of its source, compared with a dictionary."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lakesink.rows.plan import DEBEZIUM_JSON, ChangesPlan
from lakesink.rows.schema import Field, Primitive, Struct, parse_schema
from lakesink.rows.side_rows import SidePlan
from lakesink.task.changelog import changelog_schema
from lakesink.task.task import ParquetTaskWriter
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.receipt import decode
from lakesink_protocol.row_changes import DELETES, SPLITS, SUPERSEDED, TOMBSTONES, Mode, Operation
from testkit.change_stream import COLUMNS, KEY, Message, Orders, batches_of
from testkit.tasks import plan_for, write
from tests.decode.debezium.events import decoder

_NAMES = {"int64": "long", "timestamp[us]": "timestamp", "timestamp[us, tz=UTC]": "timestamptz", "bool": "boolean"}
_NAMES |= {"decimal128(38, 2)": "decimal(38, 2)", "date32[day]": "date"}


def columns() -> Struct:
    return Struct(
        tuple(
            Field(number, one.name, not one.nullable, Primitive(_NAMES.get(str(one.type), str(one.type))))
            for number, one in enumerate(COLUMNS, 1)
        )
    )


def applied(batches: list[pa.RecordBatch]) -> tuple[dict[int, Any], list[int]]:
    """The table after all changes, and how many rows, splits, changes and tombstones there were."""
    table: dict[int, Any] = {}
    counts = [0, 0, 0, 0]
    for one in batches:
        found = decoder(columns(), key=[KEY])
        for changes in (batch.changed for batch in found.rows(iter([one]))):
            for operation, row in zip(changes.operations.to_pylist(), changes.rows.to_pylist(), strict=True):
                if operation == Operation.DELETE:
                    assert table.pop(row[KEY])
                else:
                    table[row[KEY]] = row
            counts[2] += changes.rows.num_rows
        counts[0] += one.num_rows
        counts[1] += found.changed[SPLITS]
        counts[3] += found.changed[TOMBSTONES]
        assert not found.malformed, found.misfits
    return table, counts


@pytest.mark.parametrize("full", [False, True], ids=["key-before", "row-before"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "with-schema"])
def test_a_change_stream_becomes_the_table_of_its_source(wrapped: bool, full: bool) -> None:  # noqa: FBT001 - pytest's
    orders = Orders(seed=7, wrapped=wrapped, full=full)
    orders.load(100)
    orders.change(1_000)
    table, (rows, splits, changes, tombstones) = applied(list(batches_of(orders.messages, seed=3)))
    assert table == orders.table
    assert rows + splits == changes + tombstones
    assert splits > 50
    assert tombstones > 50


def test_a_change_stream_is_the_same_for_a_seed_and_keeps_the_order_of_each_partition() -> None:
    def written(seed: int) -> list[Message]:
        orders = Orders(seed)
        orders.load(5)
        orders.change(50)
        return orders.messages

    assert written(1) == written(1) != written(2)
    for partition in range(3):
        offsets = [one.offset for one in written(1) if one.partition == partition]
        assert offsets == list(range(len(offsets)))


def test_a_task_writes_the_newest_change_of_every_key_of_a_change_stream(tmp_path: Path) -> None:
    orders = Orders(seed=5)
    orders.load(40)
    orders.change(400)
    fields = [NestedField(1, KEY, LongType(), required=True), NestedField(2, "region", StringType())]
    changes = ChangesPlan(Mode.CHANGES, (1,))
    plan = plan_for(Schema(*fields), tmp_path, decode=DEBEZIUM_JSON, changes=changes)
    receipt = write(plan, batches_of(orders.messages, seed=1))
    written = [row for file in receipt.files for row in pq.read_table(file.path).to_pylist()]
    assert {row[KEY]: row["region"] for row in written} == {key: row["region"] for key, row in orders.table.items()}
    assert len(written) == len(orders.table)
    assert receipt.rows == len(orders.messages)
    changed = receipt.changed
    left_out = changed[DELETES] + changed[SUPERSEDED] + changed[TOMBSTONES]
    assert receipt.rows + changed[SPLITS] == len(written) + left_out


@pytest.mark.parametrize("full", [False, True], ids=["key-before", "row-before"])
def test_a_task_logs_every_change_of_a_change_stream_in_an_order_that_gives_its_table(
    tmp_path: Path, *, full: bool
) -> None:
    orders = Orders(seed=5, full=full)
    orders.load(40)
    orders.change(400)
    fields = [NestedField(1, KEY, LongType(), required=True), NestedField(2, "region", StringType(), required=True)]
    changes = ChangesPlan(Mode.CHANGES, (1,), has_changelog=True)
    plan = plan_for(Schema(*fields), tmp_path, decode=DEBEZIUM_JSON, changes=changes)
    columns = changelog_schema(parse_schema(plan.schema_json), changes)
    log = plan_for(iceberg_schema(columns), tmp_path / "log", batch_id=3)
    side = SidePlan("log@main", SinkKey("events"), "uuid", "", log, logs=True)
    writer = ParquetTaskWriter(plan, (), (side,))
    receipts = writer.receipts("t@main", writer.write(0, batches_of(orders.messages, seed=1)))
    own, logged = decode(receipts["t@main"]), decode(receipts["log@main"])
    rows = [row for file in logged.files for row in pq.read_table(file.path).to_pylist()]
    assert len(rows) == logged.rows == own.changes > len(orders.table)
    assert {(row["_sink"], row["_batch_id"]) for row in rows} == {("events", 3)}
    assert {row["_operation"] for row in rows} == {"upsert", "delete", "snapshot"}
    assert {row["_source_partition"] for row in rows} == {one.partition for one in orders.messages}
    newest = {row[KEY]: row for row in sorted(rows, key=lambda row: row["_source_offset"])}
    table = {key: row["region"] for key, row in newest.items() if row["_operation"] != "delete"}
    assert table == {key: row["region"] for key, row in orders.table.items()}
    deleted = [row["region"] for row in rows if row["_operation"] == "delete"]
    assert all(deleted) if full else not any(deleted)
