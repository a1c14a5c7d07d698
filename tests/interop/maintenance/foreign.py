"""What other engines do to a table that a stream changes by key, and what its rows are afterwards."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from testkit.builders import TABLE
from testkit.change_table import Change, Reference
from tests.interop.maintenance.changing import NAME, Changing
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.others import ago

NEW = Change(5_000_000_000, 0, "b", "inserted", Decimal("-0.01"))
"""A row that others insert; an older version than all of the stream."""

MERGE_ON_READ: Mapping[str, str] = {
    f"write.{statement}.mode": "merge-on-read" for statement in ("delete", "update", "merge")
}
_MERGE = (
    f"MERGE INTO {NAME} t USING (SELECT id, 'merged' AS value FROM {NAME} WHERE id % 3 = 0"
    f" UNION ALL SELECT {NEW.key}, '{NEW.value}') s ON t.id = s.id"
    " WHEN MATCHED AND t.part = 'c' THEN DELETE WHEN MATCHED THEN UPDATE SET value = s.value"
    " WHEN NOT MATCHED THEN INSERT (id, version, part, value, amount)"
    f" VALUES (s.id, {NEW.version}, '{NEW.part}', s.value, {NEW.amount})"
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One engine at work.

    Attributes:
        name: Engine and statement.
        run: Does it.
        alters: What becomes of a row; None if it is deleted.
        inserts: A row that is added, if its key is not there.
    """

    name: str
    run: Callable[[Lake], object]
    alters: Callable[[Change], Change | None] = lambda row: row
    inserts: Change | None = None

    def do(self, on: Changing) -> None:
        """Do it to the table and to the dictionary."""
        self.run(on.lake)
        self.changes(on.reference)

    def changes(self, reference: Reference) -> None:
        """What it does to the dictionary."""
        rows = reference.rows
        altered = {key: self.alters(row) for key, row in rows.items()}
        reference.rows = {key: row for key, row in altered.items() if row is not None}
        if self.inserts is not None and self.inserts.key not in rows:
            reference.rows[self.inserts.key] = self.inserts


def _spark(statement: str) -> Callable[[Lake], object]:
    return lambda lake: lake.spark.sql(statement)


def _trino(statement: str) -> Callable[[Lake], object]:
    return lambda lake: lake.trino.sql(statement)


def _call(procedure: str, **arguments: str) -> Callable[[Lake], object]:
    return lambda lake: lake.call(procedure, TABLE, **arguments)


def _expire(lake: Lake) -> object:
    return lake.call("expire_snapshots", TABLE, older_than=ago(timedelta(0)), retain_last="1")


def _merged(row: Change) -> Change | None:
    if row.key == NEW.key:
        return replace(row, value=NEW.value)
    if row.key % 3:
        return row
    return None if row.part == "c" else replace(row, value="merged")


def _updated(remainder: int, value: str) -> Callable[[Change], Change | None]:
    return lambda row: replace(row, value=value) if row.key % 5 == remainder else row


def _moved(row: Change) -> Change | None:
    return replace(row, part="a") if row.key % 7 == 1 else row


def _without(remainder: int) -> Callable[[Change], Change | None]:
    return lambda row: None if row.key % 7 == remainder else row


SPARK_MAINTAINS: Sequence[Operation] = (
    Operation("Spark rewrite_data_files", _call("rewrite_data_files", options="map('rewrite-all', 'true')")),
    Operation("Spark rewrite_manifests", _call("rewrite_manifests")),
    Operation(
        "Spark rewrite_position_delete_files",
        _call("rewrite_position_delete_files", options="map('rewrite-all', 'true')"),
    ),
    Operation("Spark expire_snapshots", _expire),
)
SPARK_CHANGES: Sequence[Operation] = (
    Operation("Spark MERGE INTO", _spark(_MERGE), _merged, NEW),
    Operation("Spark UPDATE", _spark(f"UPDATE {NAME} SET value = 'spark' WHERE id % 5 = 2"), _updated(2, "spark")),
    Operation("Spark UPDATE of the partition", _spark(f"UPDATE {NAME} SET part = 'a' WHERE id % 7 = 1"), _moved),
    Operation("Spark DELETE", _spark(f"DELETE FROM {NAME} WHERE id % 7 = 4"), _without(4)),
)
TRINO: Sequence[Operation] = (
    Operation("Trino DELETE", _trino(f"DELETE FROM {NAME} WHERE id % 7 = 3"), _without(3)),
    Operation("Trino UPDATE", _trino(f"UPDATE {NAME} SET value = 'trino' WHERE id % 5 = 1"), _updated(1, "trino")),
    Operation("Trino MERGE", _trino(_MERGE), _merged, NEW),
    Operation("Trino optimize", lambda lake: lake.execute("optimize", TABLE)),
    Operation("Trino optimize_manifests", lambda lake: lake.execute("optimize_manifests", TABLE)),
)
ALL: Sequence[Operation] = (*SPARK_MAINTAINS, *SPARK_CHANGES, *TRINO)
