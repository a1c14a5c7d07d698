"""Reads the past of a branch from the table's metadata, and where expiry cut it, from earlier metadata files.

Expiry takes snapshots out of the metadata. Earlier metadata files, of which a table keeps a hundred by default, still
have them: what they committed, and who their parents were. Neither ever changes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from lakesink.read.position import Position
from lakesink.read.steps import Past, SinkBatches, Step
from lakesink_catalog.connect.catalog_failures import METADATA_UNREADABLE
from lakesink_protocol.ledger import mark_of, stated
from lakesink_protocol.quality import REPLAYS_TABLE

_FIRST_SEQUENCE = 1
_OWN_AND_BEFORE = 2
"""A position needs its batch, and the one before it."""


def past_of(table: Table, name: str, sink: SinkBatches, position: Position | None) -> Past:
    """The snapshots under the branch's head, back to the one of the position; all of them without a position.

    Args:
        table: The table as loaded.
        name: Its identifier, for offsets and messages.
        sink: The batches that are read; names the branch.
        position: Where to stop.
    """
    known = _Known(table)
    stop = None if position is None or position.is_before_all else position
    head = head_of(table, sink.branch)

    def is_last(step: Step) -> bool:
        return stop is not None and _is_passed(step, stop)

    steps = list(known.ancestry(head, is_last))
    while not _is_enough(steps, stop, known) and known.read_earlier():
        steps = list(known.ancestry(head, is_last))
    return _past(table, name, steps, known)


def past_under(table: Table, name: str, snapshot_id: int | None, is_last: Callable[[Step], bool]) -> Past:
    """A snapshot and its ancestors, back to the first that `is_last`; all that are known if none is."""
    known = _Known(table)
    steps = list(known.ancestry(snapshot_id, is_last))
    while not _has_ended(steps, is_last, known) and known.read_earlier():
        steps = list(known.ancestry(snapshot_id, is_last))
    return _past(table, name, steps, known)


def _past(table: Table, name: str, steps: list[Step], known: "_Known") -> Past:
    """The steps, newest first, as a past."""
    complete = not steps or _is_first(steps[-1], known)
    parent_id = steps[-1].parent_id if steps else None
    return Past(name, str(table.metadata.table_uuid), steps[::-1], parent_id, complete)


def newest_batch(table: Table, name: str, sink: SinkBatches, snapshot_id: int | None = None) -> Position | None:
    """The position behind the newest batch that the metadata shows under a snapshot, by default the head."""
    steps: list[Step] = []
    head = head_of(table, sink.branch) if snapshot_id is None else snapshot_id
    for step in _Known(table).ancestry(head, lambda _: False):
        steps.append(step)
        if sum(sink.have(one.mark) for one in steps) == _OWN_AND_BEFORE:
            break
    past = Past(name, str(table.metadata.table_uuid), steps[::-1])
    if not any(sink.have(step.mark) for step in steps):
        return None
    return past.behind(past.beginning(sink), [step for step in past.steps if sink.take(step)])


def head_of(table: Table, branch: str) -> int | None:
    """The newest snapshot of a branch; None if there is none."""
    ref = table.metadata.refs.get(branch)
    return ref.snapshot_id if ref is not None and ref.snapshot_ref_type is SnapshotRefType.BRANCH else None


def _is_enough(steps: list[Step], stop: Position | None, known: "_Known") -> bool:
    """True if nothing is missing between the head and the position, or the branch's beginning."""
    if not steps or _is_first(steps[-1], known):
        return True
    if stop is None:
        return False
    return _is_passed(steps[-1], stop) or (stop.is_read and steps[-1].parent_id == stop.snapshot_id)


def _has_ended(steps: list[Step], is_last: Callable[[Step], bool], known: "_Known") -> bool:
    return bool(steps) and (is_last(steps[-1]) or _is_first(steps[-1], known))


def _is_passed(step: Step, stop: Position) -> bool:
    """True if no older snapshot can be that of the position: sequence numbers grow from parent to child."""
    return step.sequence_number <= stop.sequence_number


def _is_first(step: Step, known: "_Known") -> bool:
    """True if the snapshot is the first of its branch: PyIceberg's expiry takes the name of an expired parent away."""
    return step.parent_id is None and (step.sequence_number <= _FIRST_SEQUENCE or known.has_empty)


@dataclass(slots=True)
class _Known:
    """The snapshots of the present metadata, and those of earlier files that were read so far.

    Attributes:
        has_empty: True once a metadata file without any snapshot was read: nothing is older.
    """

    table: Table
    has_empty: bool = False
    _snapshots: dict[int, Snapshot] = field(default_factory=dict)
    _parents: dict[int, int] = field(default_factory=dict)
    _earlier: list[str] = field(default_factory=list)
    _retained: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._earlier = [entry.metadata_file for entry in self.table.metadata.metadata_log]
        self._take(self.table.metadata)
        self._retained = frozenset(self._snapshots)

    def ancestry(self, head: int | None, is_last: Callable[[Step], bool]) -> Iterator[Step]:
        """The steps from a head to the last one that is wanted, or to the first that is unknown."""
        passed: set[int] = set()
        while head is not None and head in self._snapshots and head not in passed:
            passed.add(head)
            step = self._step(self._snapshots[head])
            yield step
            head = None if is_last(step) else step.parent_id

    def read_earlier(self) -> bool:
        """Read the next older metadata file; False if there is none, or if it was deleted."""
        if not self._earlier:
            return False
        try:
            found = FromInputFile.table_metadata(self.table.io.new_input(self._earlier.pop()))
        except (FileNotFoundError, ValueError, *METADATA_UNREADABLE):
            self._earlier = []
            return False
        self._take(found)
        return True

    def _take(self, metadata: TableMetadata) -> None:
        self.has_empty = self.has_empty or not metadata.snapshots
        for snapshot in metadata.snapshots:
            self._snapshots.setdefault(snapshot.snapshot_id, snapshot)
            if snapshot.parent_snapshot_id is not None:
                self._parents.setdefault(snapshot.snapshot_id, snapshot.parent_snapshot_id)

    def _step(self, snapshot: Snapshot) -> Step:
        summary = snapshot.summary
        return Step(
            snapshot_id=snapshot.snapshot_id,
            parent_id=self._parents.get(snapshot.snapshot_id),
            sequence_number=snapshot.sequence_number or 0,
            timestamp_ms=snapshot.timestamp_ms,
            operation="" if summary is None else str(summary.operation.value),
            schema_id=snapshot.schema_id,
            manifest_list=snapshot.manifest_list,
            added_files=stated(summary, "added-data-files") or 0,
            added_rows=stated(summary, "added-records") or 0,
            added_deletes=stated(summary, "added-delete-files") or 0,
            mark=mark_of(summary),
            is_retained=snapshot.snapshot_id in self._retained,
            replays_table="" if summary is None else str(summary.get(REPLAYS_TABLE) or ""),
        )
