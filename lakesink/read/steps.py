"""Which batches of a sink come after a position, decided from the snapshots under a branch's head. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from lakesink.checkpoint.offsets import name_their_data
from lakesink.read.position import Position
from lakesink.rows.letters import is_replay_of
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import Mark

CHANGELOG_PART = ".changelog."
"""In the name of an application that writes a changelog; see `lakesink.task.changelog.changelog_key`."""
_APPEND, _REPLACE = "append", "replace"


class Follows(Enum):
    """What a consumer reads of a table."""

    STREAM = "the batches of a stream"
    CHANGELOG = "the changes that a stream wrote into its changelog"


@dataclass(frozen=True, slots=True)
class SinkBatches:
    """The batches that a consumer follows: those of one sink in one branch, or the changelog of that sink."""

    sink: str
    branch: str
    follows: Follows = Follows.STREAM

    def have(self, mark: Mark | None) -> bool:
        """True for the mark of one of these batches."""
        if mark is None or mark.key.branch != self.branch:
            return False
        if self.follows is Follows.STREAM:
            return mark.key.kind is SinkKind.STREAM and mark.key.name == self.sink
        return mark.key.kind is SinkKind.TXN and owner_of_changelog(mark.key.name) == self.sink

    def take(self, step: "Step") -> bool:
        """True for the snapshot of one of these batches, or of a replay of the sink's dead letters."""
        return self.have(step.mark) or self.have_replay(step)

    def have_replay(self, step: "Step") -> bool:
        """True for the snapshot of a replay of the sink's dead letters."""
        return step.is_replay and self.have_replays(step.application)

    def have_replays(self, application: str) -> bool:
        """True for an application that replays the sink's dead letters."""
        return self.follows is Follows.STREAM and is_replay_of(application, SinkKey(self.sink, self.branch))


def owner_of_changelog(application: str) -> str:
    """The sink whose changelog an application writes; empty if it writes something else."""
    owner, part, _ = application.rpartition(CHANGELOG_PART)
    return owner if part else ""


@dataclass(frozen=True, slots=True)
class Step:
    """One snapshot under the head, as its summary states it.

    Attributes:
        parent_id: None if it has none, or if nothing tells which.
        operation: ``append``, ``replace``, ``overwrite`` or ``delete``; empty if unknown.
        schema_id: The table's schema when it was committed; None if unknown.
        manifest_list: Its location; the file may be gone if the snapshot has expired.
        added_files: Data files that it added; 0 if unknown, as for rows.
        added_deletes: Files of deletes that it added.
        mark: Of the batch that it committed; None for a snapshot without one.
        is_retained: False if the table's metadata no longer has the snapshot.
        replays_table: Name of the table that assigns dead letters to replays; empty for other snapshots.
    """

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    schema_id: int | None
    manifest_list: str
    added_files: int
    added_rows: int
    added_deletes: int
    mark: Mark | None
    is_retained: bool = True
    replays_table: str = ""

    @property
    def batch_id(self) -> int:
        """The batch that it committed, or the number of the replay."""
        assert self.mark is not None
        return self.mark.batch_id

    @property
    def is_replay(self) -> bool:
        """True if it committed repaired dead letters."""
        return bool(self.replays_table) and self.mark is not None

    @property
    def title(self) -> str:
        """For messages."""
        return f"{'replay' if self.is_replay else 'batch'} {self.batch_id}"

    def is_read_at(self, position: Position) -> bool:
        """True if the position is behind it: sequence numbers of snapshots grow, and so do numbers of replays."""
        if self.sequence_number <= position.sequence_number:
            return True
        return self.is_replay and self.batch_id <= position.newest_replay(self.application)

    def is_other_replay(self, position: Position) -> bool:
        """True if it has the number of a replay that was read, and other letters, as far as the position tells."""
        end = position.replay_end(self.application, self.batch_id) if self.is_replay else ""
        return self.mark is not None and not self.mark.end.startswith(end)

    @property
    def application(self) -> str:
        """What committed it; empty for other writers."""
        return "" if self.mark is None else self.mark.key.name

    @property
    def keeps_rows(self) -> bool:
        """True if it took no row away: it appended rows, or moved rows into other files."""
        return self.operation in (_APPEND, _REPLACE)

    def is_batch_of(self, position: Position) -> bool:
        """True if it committed the batch that the position names, with the same rows."""
        mark = self.mark
        if mark is None:
            return False
        found = mark.key.name, mark.key.branch, mark.query_id, mark.batch_id, mark.fingerprint
        wanted = position.sink, position.branch, position.query_id, position.batch_id, position.fingerprint
        return found == wanted

    def ends_at(self, position: Position) -> bool:
        """True if it committed a batch of the same query that ends at the same offsets: nothing before it is unread."""
        mark = self.mark
        if mark is None or not position.end or mark.end != position.end:
            return False
        return (mark.key.name, mark.key.branch, mark.query_id) == (position.sink, position.branch, position.query_id)


@dataclass(frozen=True, slots=True)
class Past:
    """The snapshots under a branch's head, oldest first, as far as they are known or were needed.

    Attributes:
        parent_id: The parent of the oldest one, which is not among them.
        is_complete: True if the oldest one is the first of the branch.
    """

    table: str
    table_uuid: str
    steps: Sequence[Step]
    parent_id: int | None = None
    is_complete: bool = True

    def batches_of(self, sink: SinkBatches) -> Iterator[Step]:
        """The batches of a sink."""
        return (step for step in self.steps if sink.have(step.mark))

    def position_of(self, step: Step) -> Position:
        """The position behind a batch."""
        assert step.mark is not None
        mark = step.mark
        has_end = mark.end != self._end_before(step) and name_their_data(mark.offsets)
        return Position(
            self.table,
            self.table_uuid,
            mark.key.branch,
            mark.key.name,
            mark.query_id,
            mark.batch_id,
            mark.fingerprint,
            mark.end if has_end else "",
            step.snapshot_id,
            step.sequence_number,
        )

    def behind(self, position: Position, read: Sequence[Step]) -> Position:
        """The position behind these batches and replays, the oldest first, which are read after a position."""
        batches = [step for step in read if not step.is_replay]
        found = replace(self.position_of(batches[-1]), replays=position.replays) if batches else position
        for step in read:
            if step.is_replay and step.mark is not None:
                found = found.behind_replay(step.mark.key.name, step.batch_id, step.mark.end)
        return found

    def _end_before(self, step: Step) -> str:
        """Where the batch before it ended: a batch without input ends there too, and may have rows all the same."""
        assert step.mark is not None
        marks = (one.mark for one in reversed(self.steps) if one.sequence_number < step.sequence_number)
        return next((mark.end for mark in marks if mark is not None and mark.key == step.mark.key), "")

    def beginning(self, sink: SinkBatches) -> Position:
        """The position before every batch."""
        return Position(self.table, self.table_uuid, sink.branch, sink.sink)


class Why(Enum):
    """Why the batches after a position cannot be told."""

    BEGINNING_EXPIRED = "the first batches have expired"
    WRITTEN_OTHERWISE = "the batch was rolled back and written again with other rows"
    NEW_QUERY = "the batch was rolled back, and a new query has written since"
    UNVERIFIABLE = "expiry removed the proof that the batch is in the table"


@dataclass(frozen=True, slots=True)
class Found:
    """The place of a position: of these steps, the first that comes after it."""

    index: int


@dataclass(frozen=True, slots=True)
class Behind:
    """The table was rolled back behind the position, and has not come back to it: there is nothing new."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The position cannot be told from the table."""

    why: Why


Place = Found | Behind | Lost


def place_of(past: Past, sink: SinkBatches, position: Position) -> Place:
    """The place of a position in the past of its table."""
    if position.is_before_all:
        return Found(0) if past.is_complete else Lost(Why.BEGINNING_EXPIRED)
    for index, step in enumerate(past.steps):
        if step.snapshot_id == position.snapshot_id:
            return Found(index + position.is_read)
    same = [index for index, step in enumerate(past.steps) if step.is_batch_of(position)]
    if len(same) == 1:
        return Found(same[0] + position.is_read)
    if position.is_read and past.parent_id == position.snapshot_id:
        return Found(0)
    if not past.is_complete and past.steps[0].sequence_number > position.sequence_number:
        return Lost(Why.UNVERIFIABLE)
    return _after_rollback(past, sink, position)


def _after_rollback(past: Past, sink: SinkBatches, position: Position) -> Place:
    """The branch has older snapshots, and not that of the position: what was written since decides."""
    since = [step for step in past.batches_of(sink) if step.sequence_number > position.sequence_number]
    ending = [step for step in since if position.is_read and step.ends_at(position)]
    if len(ending) == 1:
        return Found(past.steps.index(ending[0]) + 1)
    if any(_writer(step) != (position.sink, position.query_id) for step in since):
        return Lost(Why.NEW_QUERY)
    if any(step.batch_id >= position.batch_id for step in since):
        return Lost(Why.WRITTEN_OTHERWISE)
    return Behind()


def _writer(step: Step) -> tuple[str, str]:
    assert step.mark is not None
    return step.mark.key.name, step.mark.query_id


@dataclass(frozen=True, slots=True)
class Unread:
    """What comes after a position.

    Attributes:
        batches: Of the sink, and replays of its dead letters, oldest first.
        others: Snapshots between them with rows that are not the sink's: of other sinks, of `append`, of other writers.
        stopped_by: The first snapshot that took rows away; batches behind it are not among `batches`.
        is_rolled_back: True if the table was rolled back behind the position and may come back to it.
        lost_replay: Number of a replay before the position that the table was rolled back behind; 0 for none.
    """

    batches: Sequence[Step]
    others: Sequence[Step] = ()
    stopped_by: Step | None = None
    is_rolled_back: bool = False
    lost_replay: int = 0


def unread(past: Past, sink: SinkBatches, start: int, position: Position, *, changes: bool = False) -> Unread:
    """The batches from this step on and the replays after the position, up to the first snapshot that took rows away.

    After a rollback, a replay can be committed again behind the position and before its batch, which is `start`.
    With `changes`, the consumer can show batches of the sink that replaced or deleted rows: they stop nothing.
    """
    batches: list[Step] = []
    others: list[Step] = []
    for index, step in enumerate(past.steps):
        if step.keeps_rows and sink.have_replay(step):
            batches += [] if step.is_read_at(position) else [step]
        elif index < start:
            continue
        elif not step.keeps_rows and not (changes and sink.have(step.mark)):
            return Unread(batches, others, stopped_by=step)
        elif sink.have(step.mark):
            batches.append(step)
        elif step.operation == _APPEND and step.added_rows:
            others.append(step)
    return Unread(batches, others)


def up_to(batches: Sequence[Step], most_batches: int | None, most_rows: int | None) -> Sequence[Step]:
    """As many of the batches as limits allow, and at least one: a batch is never divided."""
    rows = 0
    for count, step in enumerate(batches):
        rows += step.added_rows
        too_many = most_batches is not None and count >= most_batches
        if count and (too_many or (most_rows is not None and rows > most_rows)):
            return batches[:count]
    return batches
