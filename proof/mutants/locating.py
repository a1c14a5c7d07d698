"""Bugs of rows that are replaced and deleted by key: positions that do not fit the head, and rows that stay."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyroaring import BitMap64

from lakesink.keys import newest
from lakesink.keys.resolve import Resolution
from lakesink.parquet.deletes import DeletedRows
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.keyed_changes import Locator
from lakesink.sinks.iceberg.rows_on_head import BatchKeys, FilesOnHead
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.commit import request
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.table_change import Located
from lakesink_catalog.manifests.live import LiveFile
from lakesink_protocol.row_changes import Mode
from lakesink_protocol.two_phase import Payload
from proof.changes import Changing
from proof.content import Content
from proof.mutants.mutant import Focus, Patches, mutant

OF_CHANGES = Content(changing=Changing(Mode.CHANGES))
IN_BATCHES = Focus(content=OF_CHANGES, end=(12, 12))
COMPACTED = Focus(actions=("compact",) * 12, content=OF_CHANGES, end=(12, 12))


@mutant(
    "U2: the deletes of a batch are located once, and committed on whatever head there is by then.",
    seen_in="sinks that find rows when they write, and commit later: a compaction comes in between",
    focus=COMPACTED,
    scenario="a compaction between locating and the commit",
)
def positions_of_an_older_head(patches: Patches) -> None:
    """Whose files a compaction has replaced."""

    def call(self: Locator, table: Table, head: int | None) -> Located:
        first = self._last or real(self, table, head)
        return replace(first, head=head)

    real = patches.put(Locator, "__call__", call)


@mutant(
    "U9: a delete file replaces the older one of its data file, and has not the positions of that.",
    seen_in="merge-on-read writers with one delete file a data file",
    focus=IN_BATCHES,
    scenario="rows are replaced and deleted in each batch",
)
def older_positions_not_merged(patches: Patches) -> None:
    """Rows that an earlier batch has deleted are back."""

    def after(self: FilesOnHead, removed: pa.Table) -> tuple[list[DeletedRows], tuple[LiveFile, ...]]:
        alone = {data_file: dict.fromkeys(paths, BitMap64()) for data_file, paths in self.deleted.alone.items()}
        return real(replace(self, deleted=replace(self.deleted, alone=alone)), removed)  # type: ignore[no-any-return]

    real = patches.put(FilesOnHead, "after", after)


@mutant(
    "U9: the entry of a delete file stays, although another one has its positions: a data file has two.",
    seen_in="Iceberg's Java library refuses such a table of version 3: Can't index multiple DVs",
    focus=IN_BATCHES,
    scenario="rows are replaced and deleted in each batch",
)
def replaced_delete_file_left_live(patches: Patches) -> None:
    """They grow with each batch."""

    def after(self: FilesOnHead, removed: pa.Table) -> tuple[list[DeletedRows], tuple[LiveFile, ...]]:
        return real(self, removed)[0], ()

    real = patches.put(FilesOnHead, "after", after)


@mutant(
    "U8: a delete file has the present partition spec, and not that of the data file that it names.",
    seen_in="Iceberg #16957; Flink: rows of an earlier partitioning are not deleted",
    focus=Focus(actions=("change the partitioning",) * 4, content=OF_CHANGES),
    scenario="another partitioning between two batches",
)
def deletes_under_the_present_spec(patches: Patches) -> None:
    """No reader applies it to the data file."""

    def write(self: Locator, table: Table, deleted: Sequence[DeletedRows]) -> Any:
        spec = table.spec()
        moved = [replace(one, spec_id=spec.spec_id, partition=_partition(one, len(spec.fields))) for one in deleted]
        return real(self, table, moved)

    real = patches.put(Locator, "_write", write)


def _partition(rows: DeletedRows, fields: int) -> tuple[bytes | None, ...]:
    return (*rows.partition, *[None] * fields)[:fields]


@mutant(
    "U10: a snapshot with deletes says that it is an append, which no compaction asks for deletes.",
    seen_in="measured: 3,040 deleted rows came back with Spark's rewrite_data_files",
    focus=COMPACTED,
    scenario="a compaction that began before a batch",
)
def deletes_in_an_append(patches: Patches) -> None:
    """Its rewritten files have the deleted rows."""
    patches.put(request, "operation_of", lambda **_: Operation.APPEND)


@mutant(
    "U4: the row of a late change was written with the rest of its task, and is not removed again.",
    seen_in="sinks that write first and compare sequences afterwards",
    focus=IN_BATCHES,
    scenario="rows are replaced and deleted in each batch",
)
def late_row_not_removed(patches: Patches) -> None:
    """Its key has two live rows."""

    def masked(self: Locator, table: Table, batch: BatchKeys, resolution: Resolution) -> list[DeletedRows]:
        return real(self, table, batch, replace(resolution, late=resolution.late.slice(0, 0)))  # type: ignore[no-any-return]

    real = patches.put(Locator, "_masked", masked)


@mutant(
    "U18: a recovered record knows the data files of its batch, and not its keys.",
    seen_in="the first form of the record, which had data files alone",
    focus=Focus(actions=("kill",) * 6, content=OF_CHANGES),
    scenario="a record of changes is recovered",
)
def keys_file_lost_on_recovery(patches: Patches) -> None:
    """Its rows are added, and no older row goes."""

    def recover(self: IcebergSink, transaction: IcebergTransaction, payload: Payload) -> PreparedBatch | None:
        found = real(self, transaction, payload)
        if found is None or found.changes is None:
            return found  # type: ignore[no-any-return] # the shipped function's
        return replace(found, changes=replace(found.changes, keys_files=()))  # type: ignore[no-any-return] # likewise

    real = patches.put(IcebergSink, "recover", recover)


@mutant(
    "U3: each task has one change of a key, and nobody compares those of two tasks.",
    seen_in="writers that rely on the shuffle by key, which a skewed or an older plan does not have",
    focus=IN_BATCHES,
    scenario="rows are replaced and deleted in each batch",
)
def changes_of_two_tasks_not_compared(patches: Patches) -> None:
    """Both rows are live."""
    patches.put(newest, "_superseded", lambda _changes, _columns: pa.array([], pa.int64()))


MUTANTS = (
    positions_of_an_older_head,
    older_positions_not_merged,
    replaced_delete_file_left_live,
    deletes_under_the_present_spec,
    deletes_in_an_append,
    late_row_not_removed,
    keys_file_lost_on_recovery,
    changes_of_two_tasks_not_compared,
)
