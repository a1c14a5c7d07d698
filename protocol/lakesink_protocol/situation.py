"""One batch and the state of the table: every fact that the verdict's rules need. Pure.

*Ancestry* is the branch's head and its ancestors, see `TableView.ancestry`. An *own* mark is a batch mark of this sink.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from lakesink_protocol.iceberg_spark_sink import epochs
from lakesink_protocol.identity import NO_BATCH, Batch, SinkKey, SinkKind
from lakesink_protocol.ledger import (
    FORGOTTEN,
    LARGEST_NUMBER,
    LedgerEntry,
    Mark,
    SnapshotLike,
    TableView,
    ancestry,
    mark_of,
    stated,
    unread_version,
)

CHERRY_PICKED_FROM = "source-snapshot-id"
"""Summary property of Iceberg's `cherrypick_snapshot`: the source of the files."""


class Situation:
    """One batch and the state of the table: the facts that the rules need, each computed once."""

    def __init__(self, view: TableView, key: SinkKey, batch: Batch = NO_BATCH, start_uuid: str | None = None) -> None:
        self.view = view
        self.key = key
        self.batch = batch
        self.start_uuid = view.table_uuid if start_uuid is None else start_uuid

    @property
    def entry(self) -> LedgerEntry | None:
        """E, the sink's ledger entry."""
        return self.view.entry

    @cached_property
    def entry_in_ancestry(self) -> bool:
        """The ledger's snapshot is in the ancestry, link by link."""
        entry = self._entry
        return any(
            snapshot.snapshot_id == entry.snapshot_id for snapshot in self._ancestry_down_to(entry.sequence_number)
        )

    @cached_property
    def rolled_back(self) -> bool:
        """The ledger's snapshot was rolled back: its rows are not under the head, although the entry names it."""
        if self.entry is None or self.entry_in_ancestry:
            return False
        if self.view.head is None or self._ancestry_passes(self.entry.sequence_number):
            return True
        return self.entry.snapshot_id in self.view.snapshots and not self.view.branch_contains(self.entry.snapshot_id)

    @cached_property
    def unverifiable(self) -> bool:
        """The ledger's snapshot is neither in the ancestry nor provably rolled back; the entry is trusted."""
        return self.entry is not None and not self.entry_in_ancestry and not self.rolled_back

    @cached_property
    def undone(self) -> tuple[int, ...]:
        """Batches above M that a rollback removed, as far as their snapshots are retained."""
        above = -1 if self.newest_mark is None else self.newest_mark.batch_id
        off = (one for one in self.view.snapshots.values() if one.snapshot_id not in self._ancestry_ids)
        own = {mark.batch_id for mark in map(self._own_mark, off) if mark is not None}
        return tuple(sorted(batch_id for batch_id in own if batch_id > above))

    @cached_property
    def shows_all_undone(self) -> bool:
        """All rolled-back snapshots are retained link by link, from the ledger's snapshot to the ancestry."""
        linked = ancestry(self.view.snapshots, self._entry.snapshot_id)
        return any(snapshot.snapshot_id in self._ancestry_ids for snapshot in linked)

    @cached_property
    def skips_no_rolled_back_batch(self) -> bool:
        """No batch that was rolled back lies between the newest remaining batch and this one."""
        follows = self.newest_mark is not None and self.batch.batch_id == self.newest_mark.batch_id + 1
        return follows or (self.shows_all_undone and not any(undone < self.batch.batch_id for undone in self.undone))

    @cached_property
    def rollback_is_proven(self) -> bool:
        """The ancestry proves that the ledger's snapshot is not under the head."""
        return self.rolled_back and (
            self.view.head is None or self._ancestry_passes(self._entry.sequence_number) or self.ancestry_complete
        )

    @cached_property
    def has_own_mark(self) -> bool:
        """There is an own mark. The mark of an old batch that an operator accepted counts too."""
        return any(True for _ in self.own())

    @cached_property
    def newest_mark(self) -> Mark | None:
        """M: the newest own mark in the ancestry that moved the ledger."""
        return _first_that_moved(self._own_marks())

    @cached_property
    def newest_known(self) -> Mark | None:
        """The newest mark like M, including a mark that only the ledger's tag retains."""
        return _first_that_moved(self.own_marks)

    @cached_property
    def snapshot_of_batch(self) -> int | None:
        """Snapshot of exactly this batch: same id, query and fingerprint.

        It is in the ancestry, or retained by the ledger entry or its tag where expiry cut the ancestry.
        """
        return next((snapshot.snapshot_id for mark, snapshot in self.own() if self._is_this_batch(mark)), None)

    @cached_property
    def newest_own_snapshot(self) -> int | None:
        """The newest snapshot with an own mark, see `has_own_mark`."""
        return next((snapshot.snapshot_id for _, snapshot in self.own()), None)

    @cached_property
    def own_marks(self) -> tuple[tuple[Mark, SnapshotLike], ...]:
        """Every own mark, newest first, see `has_own_mark`."""
        return tuple(self.own())

    @cached_property
    def forgotten(self) -> bool:
        """`lakesink forget` removed the sink after the newest batch of the sink."""
        newer = takewhile(lambda snapshot: not self._own_mark(snapshot), self.view.ancestry())
        return any((snapshot.summary or {}).get(FORGOTTEN) == self.key.ledger_property for snapshot in newer)

    @cached_property
    def landed(self) -> tuple[Mark, int] | None:
        """Mark and snapshot of exactly this batch, under any sink id or branch."""
        same = ((mark, snapshot.snapshot_id) for mark, snapshot in self._marks_of_stream if self._is_this_batch(mark))
        return next(same, None)

    @cached_property
    def newest_of_stream(self) -> Mark | None:
        """The newest batch of the same query (or application) that moved a ledger, under any sink id or branch."""
        return _first_that_moved(self._marks_of_stream)

    @cached_property
    def later_landed(self) -> int | None:
        """The latest later batch of the same query (or application). It would be committed again after this one."""
        later = (mark.batch_id for mark, _ in self._marks_of_stream if mark.batch_id > self.batch.batch_id)
        return max(later, default=None)

    @cached_property
    def marked_with_other_data(self) -> bool:
        """The same query committed a batch of this id with other offsets."""
        return any(
            mark.batch_id == self.batch.batch_id and not self._is_this_batch(mark) for mark, _ in self._marks_of_stream
        )

    @cached_property
    def is_blind(self) -> bool:
        """The ancestry has a cherry-pick of an expired snapshot, which may contain any batch."""
        return any(
            cherry_picked_from(snapshot.summary) is not None
            and mark_of(snapshot.summary) is None
            and not self._cherry_picked_summary(snapshot)
            for snapshot in self.view.ancestry()
        )

    @cached_property
    def shows_the_batch_before(self) -> bool:
        """The ancestry reaches beyond this batch's place: if the batch is not in it, it was never committed there."""
        older = any(
            mark.ledger_batch_id == mark.batch_id < self.batch.batch_id and snapshot.snapshot_id in self._ancestry_ids
            for mark, snapshot in self._marks_of_stream
        )
        return not self.is_blind and (self.ancestry_complete or older)

    @cached_property
    def ancestry_complete(self) -> bool:
        """The ancestry reaches the table's first snapshot: other snapshots never were on this branch or were undone."""
        oldest = min((snapshot.sequence_number or 0 for snapshot in self.view.ancestry()), default=None)
        return self.view.last_sequence_number == 0 if oldest is None else oldest <= 1

    @cached_property
    def marked_elsewhere(self) -> bool:
        """The branch was forked from a branch of this sink: the ancestry has its marks, or expiry hides them."""
        on_walk = (mark_of(snapshot.summary) for snapshot in self.view.ancestry())
        return any(mark is not None and self._is_elsewhere(mark) for mark in on_walk) or self.hidden

    @cached_property
    def hidden(self) -> bool:
        """Expiry hides whether batches that this sink wrote to another branch are in this one."""
        return self.newest_elsewhere is not None and not self.shows_the_batch_before

    @cached_property
    def newest_elsewhere(self) -> int | None:
        """The newest known batch of this sink under other branches; the largest number if an entry is unreadable."""
        marks = (mark_of(snapshot.summary) for snapshot in self.view.snapshots.values())
        marked = (mark.batch_id for mark in marks if mark is not None and self._is_elsewhere(mark))
        entries = (LARGEST_NUMBER if entry is None else entry.batch_id for entry in self.view.elsewhere.values())
        return max((*marked, *entries), default=None)

    @cached_property
    def iceberg_sink_epochs(self) -> tuple[int, ...]:
        """Batches of the same query that Iceberg's own sink wrote since the newest own mark, newest first."""
        since = takewhile(lambda snapshot: not self._own_mark(snapshot), self.view.ancestry())
        return tuple(epochs(since, self.batch.query_id))

    @cached_property
    def unread_version(self) -> str | None:
        """Version of an own mark that this code cannot read, in the ancestry above the entry's snapshot."""
        above = -1 if self.entry is None else self.entry.sequence_number
        found = (unread_version(snapshot.summary, self.key) for snapshot in self._ancestry_down_to(above + 1))
        return next((version for version in found if version is not None), None)

    @cached_property
    def entry_contradicted(self) -> bool:
        """The entry and the mark of its snapshot differ, or a newer own mark shows that the entry is stale."""
        entry = self._entry
        if any(map(self._own_mark, self._ancestry_down_to(entry.sequence_number + 1))) or self._tag_is_newer:
            return True
        snapshot = self.view.snapshots.get(entry.snapshot_id)
        if snapshot is None:
            return False
        mark = self._own_mark(snapshot)
        if mark is None or mark.ledger_batch_id != entry.batch_id:
            return True
        if snapshot.sequence_number != entry.sequence_number:
            return True
        same = (mark.query_id, mark.fingerprint, mark.end) == (entry.query_id, entry.fingerprint, entry.end)
        return mark.batch_id == entry.batch_id and not same

    def summary_of(self, snapshot: SnapshotLike) -> Mapping[str, Any] | None:
        """The summary with the mark of a snapshot: for a cherry-pick, that of the snapshot which it restored."""
        own = mark_of(snapshot.summary)
        return snapshot.summary if own is not None else self._cherry_picked_summary(snapshot)

    def follows(self, mark: Mark | None) -> bool:
        """The batch is the next one of the same query after a mark's, and starts where that one ended."""
        if mark is None or mark.query_id != self.batch.query_id:
            return False
        return self.batch.batch_id == mark.batch_id + 1 and self.starts_at(mark.end)

    def starts_at(self, end: str) -> bool:
        """The batch starts exactly where another one ended."""
        return self.batch.start is not None and self.batch.start == end

    @property
    def _entry(self) -> LedgerEntry:
        assert self.entry is not None
        return self.entry

    @property
    def _tag_is_newer(self) -> bool:
        """The ledger tag moves with the entry, or stays if it is switched off. A newer tag proves a stale entry."""
        tag = self.view.tag_snapshot_id
        tagged = None if tag is None else self.view.snapshots.get(tag)
        if tagged is None or not self._own_mark(tagged):
            return False
        return (tagged.sequence_number or 0) > self._entry.sequence_number

    @cached_property
    def _ancestry_ids(self) -> frozenset[int]:
        """Ids of the ancestry."""
        return frozenset(snapshot.snapshot_id for snapshot in self.view.ancestry())

    def _ancestry_down_to(self, sequence_number: int) -> Iterator[SnapshotLike]:
        """The ancestry from the head down to this sequence number."""
        return takewhile(lambda snapshot: (snapshot.sequence_number or 0) >= sequence_number, self.view.ancestry())

    def _ancestry_passes(self, sequence_number: int) -> bool:
        return any((snapshot.sequence_number or 0) < sequence_number for snapshot in self.view.ancestry())

    def _own_mark(self, snapshot: SnapshotLike) -> Mark | None:
        """The mark in the snapshot's own summary, if it is an own one."""
        mark = mark_of(snapshot.summary)
        return mark if mark is not None and mark.key == self.key else None

    def _is_elsewhere(self, mark: Mark) -> bool:
        """A mark of this sink under another branch."""
        return mark.key != self.key and self._is_of_sink(mark)

    def _is_of_sink(self, mark: Mark) -> bool:
        """A mark of this sink under any branch."""
        return replace(mark.key, branch=self.key.branch) == self.key

    def _is_this_batch(self, mark: Mark) -> bool:
        wanted = (self.batch.batch_id, self.batch.query_id, self.batch.fingerprint)
        return (mark.batch_id, mark.query_id, mark.fingerprint) == wanted

    def own(self) -> Iterator[tuple[Mark, SnapshotLike]]:
        """Every own mark, newest first. Marks in the ancestry first, because a check of other marks can read files."""
        yield from self._own_marks()
        yield from self._retained_marks

    def _own_marks(self) -> Iterator[tuple[Mark, SnapshotLike]]:
        return ((mark, snapshot) for mark, snapshot in self._marks() if mark.key == self.key)

    @cached_property
    def _marks_of_stream(self) -> tuple[tuple[Mark, SnapshotLike], ...]:
        """Marks of the same query, under any key; an application has no query, so its name is used."""
        return tuple(found for found in (*self._marks(), *self._retained_marks) if self._is_of_stream(found[0]))

    def _is_of_stream(self, mark: Mark) -> bool:
        if self.key.kind is SinkKind.TXN:
            return self._is_of_sink(mark)
        return mark.key.kind is SinkKind.STREAM and mark.query_id == self.batch.query_id

    def _marks(self) -> Iterator[tuple[Mark, SnapshotLike]]:
        """Marks of all sinks in the ancestry, newest first."""
        for snapshot in self.view.ancestry():
            mark = mark_of(self.summary_of(snapshot))
            if mark is not None:
                yield mark, snapshot

    @cached_property
    def _retained_marks(self) -> tuple[tuple[Mark, SnapshotLike], ...]:
        """Own marks that expiry cut from the ancestry, kept by entry or tag, not rolled back; the newest first."""
        # without them, a batch that was accepted late would be committed again once expiry cuts the ancestry above it
        ids = {self.view.tag_snapshot_id, self.entry.snapshot_id if self.entry is not None else None}
        there = (self.view.snapshots.get(one) for one in ids - self._ancestry_ids if one is not None)
        own = ((mark, snapshot) for snapshot in filter(None, there) if (mark := self._own_mark(snapshot)) is not None)
        found = (one for one in own if not self._was_rolled_back(one[1]))
        return tuple(sorted(found, key=lambda one: one[1].sequence_number or 0, reverse=True))

    def _was_rolled_back(self, snapshot: SnapshotLike) -> bool:
        """True if this retained snapshot outside the ancestry was rolled back."""
        if self.entry is not None and snapshot.snapshot_id == self.entry.snapshot_id:
            return self.rolled_back
        if self.view.head is None or self._ancestry_passes(snapshot.sequence_number or 0):
            return True
        return not self.view.branch_contains(snapshot.snapshot_id)

    def _cherry_picked_summary(self, snapshot: SnapshotLike) -> Mapping[str, Any] | None:
        """Summary of the snapshot that a cherry-pick restored: its files are in the table again."""
        source_id = cherry_picked_from(snapshot.summary)
        source = None if source_id is None else self.view.snapshots.get(source_id)
        return None if source is None else source.summary


def _first_that_moved(marks: Iterable[tuple[Mark, SnapshotLike]]) -> Mark | None:
    """The first mark of a batch that moved the ledger."""
    return next((mark for mark, _ in marks if mark.ledger_batch_id == mark.batch_id), None)


def cherry_picked_from(summary: Mapping[str, Any] | None) -> int | None:
    """The snapshot whose files a cherry-pick restored; None if the summary is not of a cherry-pick."""
    return stated(summary, CHERRY_PICKED_FROM)
