"""Checks what batches say about their changes by key, from summaries alone. Pure.

Rows that a batch wrote are upserts, or superseded ones that it removed itself. Live rows are the rows of data files
without the deleted ones, so each batch changes their number by what its counts say, whatever others did before it.
"""

from collections.abc import Iterator, Mapping, Sequence

from lakesink_catalog.read.past import FileCounts, PastCommit
from lakesink_catalog.words import counted
from lakesink_protocol.row_changes import MODE, ChangeCounts
from lakesink_tools.audit.finding import Code, Finding


def contradictions(subject: str, batches: Sequence[PastCommit], known: Mapping[int, PastCommit]) -> Iterator[Finding]:
    """Batches whose counts contradict each other, the rows that they wrote, or the rows before and after them."""
    for batch in batches:
        said = list(_said(batch, known.get(batch.parent_snapshot_id or 0)))
        if said:
            found = f"Batch {batch.batch_id}: {'; '.join(said)}."
            yield Finding(Code.CHANGES_DISAGREE, subject, found, (str(batch.snapshot_id),))


def _said(batch: PastCommit, parent: PastCommit | None) -> Iterator[str]:
    if batch.changes is None:
        if batch.text(MODE):
            yield "its summary does not state what became of its changes"
        return
    if batch.is_append and batch.added.delete_files:
        yield "it is an append with delete files: a compaction at the same time can bring deleted rows back"
    yield from _of_counts(batch.changes)
    yield from _of_rows(batch.changes, batch)
    if parent is not None:
        yield from _of_live_rows(batch.changes, parent.totals, batch.totals)


def _of_counts(counts: ChangeCounts) -> Iterator[str]:
    if not counts.balanced:
        yield (
            f"{counted(counts.upserts, 'upsert')} became {counts.inserted:,} inserted, {counts.updated:,} updated and"
            f" {counts.late_upserts:,} late rows, and {counted(counts.deletes, 'delete')} became {counts.deleted:,}"
            f" deleted, {counts.late_deletes:,} late and {counts.absent:,} absent"
        )


def _of_rows(counts: ChangeCounts, batch: PastCommit) -> Iterator[str]:
    """Of changes of a key in two tasks, both rows are written, and the batch deletes the superseded one."""
    masked = batch.rows - counts.upserts
    if not 0 <= masked <= counts.superseded:
        yield (
            f"it wrote {counted(batch.rows, 'row')} for {counted(counts.upserts, 'upsert')} and"
            f" {counted(counts.superseded, 'superseded change')}"
        )
        return
    deletes = (batch.added.position_deletes or 0) - (batch.removed.position_deletes or 0)
    expected = counts.rows_removed + counts.late_upserts + masked
    if deletes != expected:
        yield f"it added {counted(deletes, 'position delete')}, and {counted(expected, 'row')} had to be removed"


def _of_live_rows(counts: ChangeCounts, before: FileCounts, after: FileCounts) -> Iterator[str]:
    live_before, live_after = _live(before), _live(after)
    if live_before is None or live_after is None:
        return
    expected = live_before + counts.upserts - counts.late_upserts - counts.rows_removed
    if live_after != expected:
        yield f"its changes turn {live_before:,} live rows into {expected:,}, and its summary states {live_after:,}"


def _live(totals: FileCounts) -> int | None:
    if totals.rows is None or totals.position_deletes is None:
        return None
    return totals.rows - totals.position_deletes
