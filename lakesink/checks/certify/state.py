"""What a table shows, and what a catalog did with the commits that it was sent. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """What a table shows of lakesink's commits.

    Attributes:
        uuid: The table.
        head: Snapshot of the branch; None if there is none.
        tag: Snapshot of the ledger tag; None if there is none.
        entry: Snapshot that the ledger entry names; None if there is none.
        snapshots: Id and parent of each, as often as the metadata has it.
    """

    uuid: str
    head: int | None
    tag: int | None
    entry: int | None
    snapshots: tuple[tuple[int, int | None], ...]

    @property
    def branch(self) -> tuple[int, ...]:
        """Snapshots from the head back."""
        parents, at = dict(self.snapshots), self.head
        walked: dict[int, None] = {}
        while at is not None and at in parents and at not in walked:
            walked[at] = None
            at = parents[at]
        return tuple(walked)


@dataclass(frozen=True, slots=True)
class Sent:
    """One request of a writer, and what it heard.

    Attributes:
        snapshot_ids: The snapshot for each table in it.
        refused_as: Name of the error; empty if it was acknowledged.
        unknown: True if that error is no refusal.
        read_back: True if the same connection showed an acknowledged commit at once.
    """

    snapshot_ids: tuple[int, ...]
    refused_as: str = ""
    unknown: bool = False
    read_back: bool = True


@dataclass(frozen=True, slots=True)
class RaceFigures:
    """What came of a race.

    Attributes:
        acknowledged: Requests that were told yes.
        refused: Requests that were told no.
        unknown: Requests without an answer.
        lost: Acknowledged requests of which a table does not have its part.
        torn: Requests that are in one table and not in another.
        forked: Snapshots that share their parent with another one.
        unread: Acknowledged requests that their own writer did not see at once.
        parted: Tables whose ledger entry or tag is not at the head.
    """

    acknowledged: int
    refused: int
    unknown: int
    lost: int
    torn: int
    forked: int
    unread: int
    parted: int

    @property
    def broken(self) -> str:
        """What was done wrong; empty if nothing."""
        return ", ".join(self._wrongs())

    def _wrongs(self) -> Iterator[str]:
        if self.lost:
            yield f"{self.lost} of {self.acknowledged} acknowledged commits are lost"
        if self.torn:
            yield f"{self.torn} commits are in one table and not in the other"
        if self.forked:
            yield f"{self.forked} snapshots were put on a head that another one had taken"
        if self.unread:
            yield f"{self.unread} acknowledged commits were not seen by the one who sent them"
        if self.parted:
            yield "ledger entry or tag are not at the head"


def race_figures(sent: Sequence[Sent], states: Sequence[State], *, ledger_tag: bool) -> RaceFigures:
    """Compare what the writers heard with what the tables show.

    Args:
        sent: Of all writers.
        states: One for each table, afterwards, in the order of the requests.
        ledger_tag: Whether the commits set it.
    """
    branches = [set(state.branch) for state in states]
    acknowledged = [request for request in sent if not request.refused_as]
    parts = [[snapshot in branch for snapshot, branch in _parts(request, branches)] for request in sent]
    return RaceFigures(
        acknowledged=len(acknowledged),
        refused=sum(bool(request.refused_as) and not request.unknown for request in sent),
        unknown=sum(request.unknown for request in sent),
        lost=sum(not request.refused_as and not all(there) for request, there in zip(sent, parts, strict=True)),
        torn=sum(any(there) and not all(there) for there in parts),
        forked=sum(map(_forked, states)),
        unread=sum(not request.read_back for request in acknowledged),
        parted=sum(_parted(state, ledger_tag=ledger_tag) for state in states),
    )


def _parts(request: Sent, branches: Sequence[set[int]]) -> Iterator[tuple[int, set[int]]]:
    return zip(request.snapshot_ids, branches, strict=True)


def _forked(state: State) -> int:
    children = Counter(parent for _, parent in state.snapshots)
    return sum(count - 1 for count in children.values())


def _parted(state: State, *, ledger_tag: bool) -> bool:
    return state.entry != state.head or (ledger_tag and state.tag != state.head)


def not_landed(before: State, after: State, snapshot_id: int, *, ledger_tag: bool) -> str:
    """What is wrong with a commit that was acknowledged; empty if it is there with all that it asked for.

    Args:
        before: The table before it.
        after: The table after it.
        snapshot_id: Its snapshot.
        ledger_tag: Whether it set the tag.
    """
    if after.head != snapshot_id or after.snapshots.count((snapshot_id, before.head)) != 1:
        return "It accepted a commit that the table does not show."
    if Counter(after.snapshots) - Counter(before.snapshots) != Counter({(snapshot_id, before.head): 1}):
        return "It accepted a commit and put other snapshots beside it."
    if after.entry != snapshot_id:
        return "It accepted a commit and left out the table property in it."
    if ledger_tag and after.tag != snapshot_id:
        return "It accepted a commit and left out the tag in it."
    return ""


def not_refused(before: State, after: State, refused_as: str, what: str) -> str:
    """What is wrong with the answer to a commit that must not land; empty if nothing.

    Args:
        before: The table before it.
        after: The table after it.
        refused_as: Name of the error; empty if it was acknowledged.
        what: The commit in words.
    """
    if after != before:
        said = f"refused ({refused_as})" if refused_as else "accepted"
        return f"It {said} {what}, and the table shows it."
    return "" if refused_as else f"It accepted {what}."
