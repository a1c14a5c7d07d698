"""Bugs of documents with changes: what is put aside, logged and replayed is not what came."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakesink.keys import resolve
from lakesink.keys.change_columns import ChangeIdentity
from lakesink.rows.changed_rows import RowBatch
from lakesink.rows.scalars import FALSE
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.keyed_changes import ChangesByKey
from lakesink.task import changelog
from lakesink.task.stages import Expect
from lakesink_protocol.row_changes import Operation
from proof.mutants.mutant import Patches


def letters_without_their_sequence(patches: Patches) -> None:
    """Nobody can tell whether a dead letter is newer than the row of its key."""

    def told(self: ChangeIdentity, rows: RowBatch, chosen: Sequence[int]) -> Mapping[str, Any]:
        return {**real(self, rows, chosen), "row_sequence": [None] * len(chosen)}

    real = patches.put(ChangeIdentity, "told", told)


def replays_are_never_late(patches: Patches) -> None:
    """A repaired change replaces a newer row."""
    replayed: list[bool] = []

    def checked(self: ChangesByKey, *rest: Any) -> Any:
        replayed[:] = [self.are_replayed]
        return real(self, *rest)

    def holds(live: pa.Table, *rest: Any) -> Any:
        return pa.chunked_array([pa.repeat(FALSE, live.num_rows)]) if replayed[0] else compared(live, *rest)

    real = patches.put(ChangesByKey, "_checked", checked)
    compared = patches.put(resolve, "_holds", holds)


def replays_bring_deleted_rows_back(patches: Patches) -> None:
    """Nobody asks whether the keys of repaired changes have rows."""

    def checked(self: ChangesByKey, *rest: Any) -> Any:
        return real(replace(self, are_replayed=False), *rest)

    real = patches.put(ChangesByKey, "_checked", checked)


def schema_change_lost_on_recovery(patches: Patches) -> None:
    """A recovered record adds its files, and not their columns."""

    def recover(self: IcebergSink, *rest: Any) -> Any:
        found = real(self, *rest)
        return None if found is None else replace(found, schema_change=None)

    real = patches.put(IcebergSink, "recover", recover)


def half_an_event_put_aside(patches: Patches) -> None:
    """The delete lands of an event that changes a key, and its upsert does not."""

    def made_with(_: RowBatch, rows: Collection[int]) -> Collection[int]:
        return rows

    patches.put(RowBatch, "made_with", made_with)


def deletes_judged(patches: Patches) -> None:
    """A delete has no row, and so meets no expectation."""

    def kept(self: Expect, rows: RowBatch, met: Any, _: Any) -> Any:
        return real(self, rows, met, None)

    real = patches.put(Expect, "_kept", kept)


def snapshots_logged_as_upserts(patches: Patches) -> None:
    """A changelog does not tell which rows are of the initial load."""
    operations = list(changelog._OPERATIONS)  # noqa: SLF001 - the bug is inside
    operations[sorted(Operation).index(Operation.SNAPSHOT)] = operations[sorted(Operation).index(Operation.UPSERT)]
    patches.put(changelog, "_OPERATIONS", tuple(operations))


BUGS: Mapping[str, Callable[[Patches], None]] = {
    "0107: the dead letter of a change does not say which one of its key it was.": letters_without_their_sequence,
    "0107: a repaired change replaces a row that came later.": replays_are_never_late,
    "0107: a repaired change brings a row back that was deleted later.": replays_bring_deleted_rows_back,
    "P9: a recovered batch of changes has no place for its new columns.": schema_change_lost_on_recovery,
    "0107: one half of an event that changes a key lands without the other.": half_an_event_put_aside,
    "0107: a delete that no expectation is about is put aside, and its row stays.": deletes_judged,
    "0107: a changelog tells another operation than came.": snapshots_logged_as_upserts,
}
"""By what they break."""
