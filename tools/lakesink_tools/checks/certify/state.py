"""Compares what a table shows with the catalog's answers to commits. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lakesink_catalog.words import counted


@dataclass(frozen=True, slots=True)
class State:
    """What a table shows of lakesink's commits; None where there is no such snapshot."""

    uuid: str  # of the table
    head: int | None
    tag: int | None  # snapshot of the ledger tag
    entry: int | None  # snapshot that the ledger entry names
    snapshots: tuple[tuple[int, int | None], ...]  # id and parent of each, once for each occurrence in the metadata
    batches: int = 0  # as the ledger counts them

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
    """One request, with its answer."""

    snapshot_ids: tuple[int, ...]  # one for each table in the request
    refused_as: str = ""  # name of the error; empty if the commit was acknowledged
    unknown: bool = False  # True if that error is no refusal
    detail: str = ""  # that error in words, without secrets
    read_back: bool = True  # True if the same connection showed an acknowledged commit at once


@dataclass(frozen=True, slots=True)
class RaceFigures:
    """Result of a race, in numbers of requests unless stated otherwise."""

    acknowledged: int
    refused: int
    unknown: int  # without an answer
    lost: int  # acknowledged, but missing in a table
    torn: int  # in one table, but not in another
    forked: int  # snapshots that share their parent with another one
    unread: int  # acknowledged, but not shown to their own writer at once
    parted: int  # tables whose ledger entry or tag is not at the head

    @property
    def broken(self) -> str:
        """What the catalog did wrong; else empty."""
        wrongs = {
            f"{self.lost} of {self.acknowledged} acknowledged commits are lost": self.lost,
            f"{counted(self.torn, 'commit')} in one table and not in the other": self.torn,
            f"{counted(self.forked, 'snapshot')} with the parent of another snapshot": self.forked,
            f"{counted(self.unread, 'acknowledged commit')} not visible to their own writer": self.unread,
            "ledger entry or tag are not at the head": self.parted,
        }
        return ", ".join(text for text, count in wrongs.items() if count)


def race_figures(
    sent: Sequence[Sent], before: Sequence[State], states: Sequence[State], *, ledger_tag: bool
) -> RaceFigures:
    """Compare the answers to the writers with what the tables show after the race, in the order of the requests."""
    branches = [set(state.branch) for state in states]
    acknowledged = [request for request in sent if not request.refused_as]
    parts = [[snapshot in branch for snapshot, branch in zip(one.snapshot_ids, branches, strict=True)] for one in sent]
    lost = sum(not one.refused_as and not all(there) for one, there in zip(sent, parts, strict=True))
    if any(len(state.branch) < state.batches for state in states):  # then only ledgers know how many batches there are
        grown = min(after.batches - earlier.batches for earlier, after in zip(before, states, strict=True))
        lost = max(len(acknowledged) - grown, 0)
    return RaceFigures(
        acknowledged=len(acknowledged),
        refused=sum(bool(request.refused_as) and not request.unknown for request in sent),
        unknown=sum(request.unknown for request in sent),
        lost=lost,
        torn=sum(any(there) and not all(there) for there in parts),
        forked=sum(
            count - 1
            for state in states
            for count in Counter(parent for _, parent in state.snapshots).values()  # the children of each parent
        ),
        unread=sum(not request.read_back for request in acknowledged),
        parted=sum(state.entry != state.head or (ledger_tag and state.tag != state.head) for state in states),
    )


def not_landed(before: State, after: State, snapshot_id: int, *, ledger_tag: bool) -> str:
    """What is wrong with an acknowledged commit of this snapshot; empty if the table shows all its parts.

    A catalog may have forgotten the snapshots below it: that is another check's.
    """
    forgotten = before.head not in dict(after.snapshots)
    added = (snapshot_id, None if forgotten else before.head)
    if after.head != snapshot_id or after.snapshots.count(added) != 1:
        return "It accepted a commit that the table does not show."
    if Counter(after.snapshots) - Counter(before.snapshots) != Counter({added: 1}):
        return "It accepted a commit and added other snapshots."
    if after.entry != snapshot_id:
        return "It accepted a commit and left out the table property in it."
    if ledger_tag and after.tag != snapshot_id:
        return "It accepted a commit and left out the tag in it."
    return ""


def not_refused(before: State, after: State, refused_as: str, what: str) -> str:
    """What is wrong with the answer to a commit that must not land, `what` in words; else empty."""
    if after != before:
        said = f"refused ({refused_as})" if refused_as else "accepted"
        return f"It {said} {what}, and the table shows it."
    return "" if refused_as else f"It accepted {what}."


def broken_promise(rivals: Sequence[Sent], after: State) -> str:
    """What a catalog did wrong with rival commits that asserted the same head; empty if it kept its promise."""
    accepted = {snapshot_id for sent in rivals if not sent.refused_as for snapshot_id in sent.snapshot_ids}
    there = {one for sent in rivals for one in sent.snapshot_ids} & {shown for shown, _ in after.snapshots}
    if len(accepted) > 1:
        return "It accepted two commits that asserted the same head, so one of them is lost, or both are in the table."
    if not accepted <= there:
        return "It accepted a commit that the table does not show."
    if len(there) > 1:
        return "The table shows two commits that asserted the same head."
    if there and after.head not in there:
        return "It moved the branch to another snapshot than the accepted one."
    return ""
