"""Which batches of a sink come after a position, decided from the snapshots under a branch's head. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from lakesink.checkpoint.offsets import name_their_data, pass_by
from lakesink.read.position import Position
from lakesink.rows.letters import is_replay_of
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import Mark

CHANGELOG_PART = ".changelog."
"""In the name of an application that writes a changelog; see `lakesink.task.changelog.changelog_key`."""


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

    def of(self, past: Past) -> list[PastCommit]:
        """These batches in the past of their branch."""
        return [commit for commit in past.commits if self.have(commit.mark)]

    def take(self, commit: PastCommit) -> bool:
        """True for the snapshot of one of these batches, or of a replay of the sink's dead letters."""
        return self.have(commit.mark) or self.have_replay(commit)

    def have_replay(self, commit: PastCommit) -> bool:
        """True for the snapshot of a replay of the sink's dead letters."""
        return commit.is_replay and self.have_replays(commit.application)

    def have_replays(self, application: str) -> bool:
        """True for an application that replays the sink's dead letters."""
        return self.follows is Follows.STREAM and is_replay_of(application, SinkKey(self.sink, self.branch))

    def beginning(self, table: str, table_uuid: str) -> Position:
        """The position before every batch."""
        return Position(table, table_uuid, self.branch, self.sink)


def owner_of_changelog(application: str) -> str:
    """The sink whose changelog an application writes; empty if it writes something else."""
    owner, part, _ = application.rpartition(CHANGELOG_PART)
    return owner if part else ""


def is_read_at(commit: PastCommit, position: Position) -> bool:
    """True if the position is behind it: sequence numbers of snapshots grow, and so do numbers of replays."""
    if commit.sequence_number <= position.sequence_number:
        return True
    return commit.is_replay and commit.batch_id <= position.newest_replay(commit.application)


def is_batch_of(commit: PastCommit, position: Position) -> bool:
    """True if it committed the batch that the position names, of the same input."""
    mark = commit.mark
    if mark is None:
        return False
    found = mark.key.name, mark.key.branch, mark.query_id, mark.batch_id, mark.fingerprint
    wanted = position.sink, position.branch, position.query_id, position.batch_id, position.fingerprint
    return found == wanted


def ends_at(batch: PastCommit, position: Position) -> bool:
    """True if it is a batch of the same query that ends at the same offsets: nothing before it is unread.

    Offsets that do not name their data do not prove that: see `name_their_data`.
    """
    mark = batch.known_mark
    if not position.end or mark.end != position.end or not name_their_data(mark.offsets):
        return False
    return (mark.key.name, mark.key.branch, mark.query_id) == (position.sink, position.branch, position.query_id)


def position_of(past: Past, batch: PastCommit) -> Position:
    """The position behind a batch."""
    mark = batch.known_mark
    before = (one.mark for one in reversed(past.commits) if one.sequence_number < batch.sequence_number)
    # A batch without input ends where the one before it ended, and may have rows all the same.
    end_before = next((one.end for one in before if one is not None and one.key == mark.key), "")
    has_end = mark.end != end_before and name_their_data(mark.offsets)
    return Position(
        past.table,
        past.table_uuid,
        mark.key.branch,
        mark.key.name,
        mark.query_id,
        mark.batch_id,
        mark.fingerprint,
        mark.end if has_end else "",
        batch.snapshot_id,
        batch.sequence_number,
    )


def behind(past: Past, position: Position, read: Sequence[PastCommit]) -> Position:
    """The position behind these batches and replays, the oldest first, which are read after a position."""
    batches = [one for one in read if not one.is_replay]
    found = replace(position_of(past, batches[-1]), replays=position.replays) if batches else position
    for one in read:
        if one.is_replay:
            found = found.behind_replay(one.application, one.batch_id, one.known_mark.end)
    return found


class Why(Enum):
    """Why the batches after a position cannot be told."""

    BEGINNING_EXPIRED = "the first batches have expired"
    WRITTEN_OTHERWISE = "the batch was rolled back and written again with other rows"
    NEW_QUERY = "the batch was rolled back, and a new query has written since"
    UNVERIFIABLE = "expiry removed the proof that the batch is in the table"


@dataclass(frozen=True, slots=True)
class Found:
    """The place of a position: of the commits, the first that comes after it."""

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
    for index, commit in enumerate(past.commits):
        if commit.snapshot_id == position.snapshot_id:
            return Found(index + position.is_read)
    same = [index for index, commit in enumerate(past.commits) if is_batch_of(commit, position)]
    if len(same) == 1:
        return Found(same[0] + position.is_read)
    if position.is_read and past.parent_id == position.snapshot_id:
        return Found(0)
    if not past.is_complete and past.commits[0].sequence_number > position.sequence_number:
        return Lost(Why.UNVERIFIABLE)
    return _after_rollback(past, sink, position)


def _after_rollback(past: Past, sink: SinkBatches, position: Position) -> Place:
    """The branch has older snapshots, and not that of the position: what was written since decides."""
    since = [batch for batch in sink.of(past) if batch.sequence_number > position.sequence_number]
    ending = [batch for batch in since if position.is_read and ends_at(batch, position)]
    if len(ending) == 1:
        return Found(past.commits.index(ending[0]) + 1)
    if any((batch.application, batch.known_mark.query_id) != (position.sink, position.query_id) for batch in since):
        return Lost(Why.NEW_QUERY)
    if any(batch.batch_id >= position.batch_id for batch in since):
        return Lost(Why.WRITTEN_OTHERWISE)
    return Behind()


def is_passed(past: Past, sink: SinkBatches, position: Position, read: Mark | None) -> bool:
    """True if a batch since a rollback ends behind the one that was read, whose mark this is: none will end there."""
    if not position.is_read or read is None or read.end != position.end:
        return False
    since = [batch for batch in sink.of(past) if batch.sequence_number > position.sequence_number]
    return any(pass_by(batch.known_mark.offsets, read.offsets) for batch in since)


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

    batches: Sequence[PastCommit]
    others: Sequence[PastCommit] = ()
    stopped_by: PastCommit | None = None
    is_rolled_back: bool = False
    lost_replay: int = 0


def unread(past: Past, sink: SinkBatches, start: int, position: Position, *, changes: bool = False) -> Unread:
    """The batches from this commit on and the replays after the position, up to the first snapshot that took rows away.

    After a rollback, a replay can be committed again behind the position and before its batch, which is `start`.
    With `changes`, the consumer can show batches of the sink that replaced or deleted rows: they stop nothing.
    """
    batches: list[PastCommit] = []
    others: list[PastCommit] = []
    for index, commit in enumerate(past.commits):
        if commit.keeps_rows and sink.have_replay(commit):
            batches += [] if is_read_at(commit, position) else [commit]
        elif index < start:
            continue
        elif not commit.keeps_rows and not (changes and sink.have(commit.mark)):
            return Unread(batches, others, stopped_by=commit)
        elif sink.have(commit.mark):
            batches.append(commit)
        elif commit.is_append and commit.rows:
            others.append(commit)
    return Unread(batches, others)


def up_to(batches: Sequence[PastCommit], most_batches: int | None, most_rows: int | None) -> Sequence[PastCommit]:
    """As many of the batches as limits allow, and at least one: a batch is never divided."""
    rows = 0
    for count, batch in enumerate(batches):
        rows += batch.rows
        too_many = most_batches is not None and count >= most_batches
        if count and (too_many or (most_rows is not None and rows > most_rows)):
            return batches[:count]
    return batches
