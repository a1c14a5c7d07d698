"""The past of a table: what its snapshots committed, and which of them are under the head of a branch.

Every reader of a table's history asks here: `history`, the audit, ``format("lakesink")``, lineage and the commands.
Batch marks are in the summaries of snapshots; of snapshots that expired, `earlier` still finds them. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakesink_catalog.snapshots import head_of, snapshots_by_id
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.iceberg_spark_sink import epoch_of
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey
from lakesink_protocol.ledger import FORGOTTEN, Mark, ancestry, mark_of, stated
from lakesink_protocol.measures import MEASURES, Tally
from lakesink_protocol.quality import REPLAYS_TABLE
from lakesink_protocol.row_changes import ChangeCounts, counts_in
from lakesink_protocol.situation import cherry_picked_from
from lakesink_protocol.suggest import did_you_mean

_APPEND, _REPLACE = "append", "replace"
FIRST_SEQUENCE = 1
_LAST_MS = 253_402_300_799_000  # the end of the last year in Python's calendar


class FileCounts(NamedTuple):
    """What files hold; None for what a summary does not state."""

    files: int | None  # data files
    rows: int | None
    bytes: int | None  # of data files and delete files
    delete_files: int | None
    position_deletes: int | None


class PastCommit(NamedTuple):
    """One snapshot with the batch that it committed, as light as a history of many thousands needs it.

    What few readers need is read from the summary when they ask for it.

    Attributes:
        mark: Of the batch; None for a snapshot without one.
        operation: ``append``, ``replace``, ``overwrite`` or ``delete``; empty if unknown.
        added: By its summary.
        picked_from: The source of a cherry-pick; None in a `Past` that has the mark of the source.
        epoch: Query and batch of Iceberg's own Spark sink.
        changes: By key; None if it appended or is of another writer.
        counts: What was found in its rows.
        parent_snapshot_id: None if it has none, or if nothing tells which.
        in_branch: See `lakesink.Record`; None also for a snapshot without a batch.
        is_retained: False if the table's metadata no longer has the snapshot.
    """

    snapshot: Snapshot
    mark: Mark | None
    operation: str
    added: FileCounts
    picked_from: int | None
    epoch: tuple[str, int] | None
    changes: ChangeCounts | None
    counts: Tally
    parent_snapshot_id: int | None
    in_branch: bool | None = None
    is_retained: bool = True

    @property
    def snapshot_id(self) -> int:
        """Id of the snapshot."""
        return self.snapshot.snapshot_id

    @property
    def sequence_number(self) -> int:
        """Sequence number of the snapshot; 0 if it has none."""
        return self.snapshot.sequence_number or 0

    @property
    def summary(self) -> Any:
        """Summary of the snapshot."""
        return self.snapshot.summary

    @property
    def committed_at(self) -> datetime:
        """UTC time by the clock of who committed."""
        return time_of(self.snapshot.timestamp_ms)

    @property
    def known_mark(self) -> Mark:
        """The mark of a commit that has one."""
        assert self.mark is not None, "the caller chose a batch"
        return self.mark

    @property
    def batch_id(self) -> int:
        """Batch id, version, or number of a replay."""
        return self.known_mark.batch_id

    @property
    def application(self) -> str:
        """The sink or application that committed it; empty for other writers."""
        return "" if self.mark is None else self.mark.key.name

    @property
    def is_counted(self) -> bool:
        """False if the batch was rolled back."""
        return self.in_branch is not False

    @property
    def is_blind(self) -> bool:
        """True for a cherry-pick of an expired snapshot, which may contain any batch."""
        return self.picked_from is not None and self.mark is None

    @property
    def is_append(self) -> bool:
        """True if it only added files."""
        return self.operation == _APPEND

    @property
    def keeps_rows(self) -> bool:
        """True if it took no row away: it appended rows, or moved rows into other files."""
        return self.operation in (_APPEND, _REPLACE)

    @property
    def rows(self) -> int:
        """Rows in the data files that it added; 0 if unknown, as for files."""
        return self.added.rows or 0

    @property
    def files(self) -> int:
        """Data files that it added."""
        return self.added.files or 0

    @property
    def removed(self) -> FileCounts:
        """What it removed, by its summary."""
        return _counts(self.summary, "deleted", "removed")

    @property
    def totals(self) -> FileCounts:
        """What the table holds with it, by its summary."""
        return _counts(self.summary, "total", "total")

    def text(self, name: str) -> str:
        """A property of its summary; empty if it is not there."""
        return text_in(self.summary, name)

    @property
    def replays_table(self) -> str:
        """Name of the table that assigns dead letters to replays; empty for other commits."""
        return self.text(REPLAYS_TABLE) if self.mark is not None else ""

    @property
    def is_replay(self) -> bool:
        """True if it committed repaired dead letters."""
        return bool(self.replays_table)

    @property
    def title(self) -> str:
        """For messages."""
        return f"{'replay' if self.is_replay else 'batch'} {self.batch_id}"


@dataclass(frozen=True)
class Past:
    """The commits under the head of a branch, or under another snapshot, as far as they are known or were needed.

    Attributes:
        table: Identifier, for offsets and messages.
        commits: Oldest first.
        is_complete: True if the oldest one is the first of the branch.
    """

    table: str
    table_uuid: str
    commits: Sequence[PastCommit]
    is_complete: bool = True

    @property
    def head(self) -> PastCommit | None:
        """The newest commit; None if there is none."""
        return self.commits[-1] if self.commits else None

    @property
    def parent_id(self) -> int | None:
        """The parent of the oldest commit, which is not among them."""
        return self.commits[0].parent_snapshot_id if self.commits else None

    @cached_property
    def by_sink(self) -> Mapping[SinkKey, Sequence[PastCommit]]:
        """The batches of each sink, oldest first."""
        return by_sink(self.commits)


@dataclass(frozen=True)
class Retained:
    """What all snapshots in one version of a table's metadata show.

    Attributes:
        commits: Oldest first.
        forgotten: Ledger properties that were removed.
    """

    table: Table
    commits: Sequence[PastCommit]
    forgotten: frozenset[str]

    @cached_property
    def by_id(self) -> Mapping[int, PastCommit]:
        """The commits by the ids of their snapshots."""
        return {commit.snapshot_id: commit for commit in self.commits}

    def batches(self, sink: str | None = None, branch: str | None = None) -> list[PastCommit]:
        """Every batch, oldest first; of one sink or branch, or of both."""
        return [
            one
            for one in self.commits
            if one.mark is not None and sink in (None, one.mark.key.name) and branch in (None, one.mark.key.branch)
        ]

    def ancestry(self, snapshot_id: int | None) -> Iterator[PastCommit]:
        """A commit and its ancestors, newest first, as far as they are retained."""
        return ancestry(self.by_id, snapshot_id)


def retained(table: Table) -> Retained:
    """Read the summary of every snapshot, once."""
    snapshots = snapshots_by_id(table.metadata)

    @cache
    def under(branch: str) -> tuple[frozenset[int], int]:
        """The snapshots under the head of a branch, and the lowest of their sequence numbers."""
        found = list(ancestry(snapshots, head_of(table, branch)))
        lowest = min((one.sequence_number or 0 for one in found), default=0)
        return frozenset(one.snapshot_id for one in found), lowest

    def in_branch(mark: Mark, snapshot: Snapshot) -> bool | None:
        ids, lowest = under(mark.key.branch)
        if snapshot.snapshot_id in ids:
            return True
        return False if (snapshot.sequence_number or 0) >= lowest or lowest <= FIRST_SEQUENCE else None

    commits: list[PastCommit] = []
    forgotten = set[str]()
    for snapshot in sorted(table.metadata.snapshots, key=lambda one: (one.sequence_number or 0, one.snapshot_id)):
        summary = snapshot.summary
        forgotten.add(text_in(summary, FORGOTTEN))
        mark = mark_of(summary)
        is_in = None if mark is None else in_branch(mark, snapshot)
        commits.append(commit_of(snapshot, summary, mark, snapshot.parent_snapshot_id, in_branch=is_in))
    return Retained(table, commits, frozenset(forgotten - {""}))


def check_branch(table: Table, branch: str) -> None:
    """Refuse a branch that the table does not have; every table has main."""
    branches = {MAIN_BRANCH, *(name for name in table.metadata.refs if head_of(table, name) is not None)}
    if branch not in branches:
        near, name = did_you_mean(branch, branches), ".".join(table.name())
        raise CatalogError.of("BRANCH_MISSING.looked_for", table=name, branch=branch[:60], near=near)


def by_sink(commits: Iterable[PastCommit]) -> Mapping[SinkKey, Sequence[PastCommit]]:
    """The batches of each sink, in the order of the commits."""
    found: dict[SinkKey, list[PastCommit]] = defaultdict(list)
    for commit in commits:
        if commit.mark is not None:
            found[commit.mark.key].append(commit)
    return dict(found)


def text_in(summary: Any, name: str) -> str:
    """A property of a snapshot's summary; empty if it is not there."""
    return str(summary[name] or "") if summary else ""


def time_of(timestamp_ms: int) -> datetime:
    """A snapshot's time in UTC, limited to the range of Python's calendar."""
    return datetime.fromtimestamp(min(max(timestamp_ms, 0), _LAST_MS) / 1000, UTC)


def commit_of(
    snapshot: Snapshot,
    summary: Any,
    mark: Mark | None,
    parent_id: int | None,
    *,
    in_branch: bool | None = None,
    is_retained: bool = True,
) -> PastCommit:
    """A commit as its summary states it; `mark` is the one in the summary."""
    return PastCommit(
        snapshot,
        mark,
        "" if summary is None else summary.operation.value,
        _counts(summary, "added", "added"),
        cherry_picked_from(summary),
        epoch_of(summary),
        None if summary is None else counts_in(summary),
        Tally((one, stated(summary, one.key) or 0) for one in MEASURES),
        parent_id,
        in_branch,
        is_retained,
    )


def _counts(summary: Any, data: str, others: str) -> FileCounts:
    """The counts in a summary, whose names begin in two ways if files were removed."""
    names = f"{data}-data-files", f"{data}-records", f"{others}-files-size"
    deletes = f"{others}-delete-files", f"{others}-position-deletes"
    return _shared(*(stated(summary, name) for name in (*names, *deletes)))


_shared = lru_cache(maxsize=1024)(FileCounts)
"""One object for all snapshots with the same counts: most of a history remove nothing."""
