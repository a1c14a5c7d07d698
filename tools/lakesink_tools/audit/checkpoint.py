"""Compares Spark's ``commits`` with the ledger and the marks: is every completed batch in the table?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakesink.checkpoint.folder import Checkpoint, FsspecFiles
from lakesink_catalog.words import counted
from lakesink_protocol.errors import QueryError
from lakesink_protocol.identity import digest
from lakesink_protocol.ledger import LedgerEntry, Mark
from lakesink_protocol.redact import describe, redact
from lakesink_tools.audit.finding import Code, Finding, Note, listed


@dataclass(frozen=True, slots=True)
class Done:
    """The completed batches in a checkpoint."""

    query_id: str
    batches: tuple[int, ...]  # batches that Spark completed and still lists, ascending
    ends: Mapping[int, str]  # digest of the end offsets by batch, as far as Spark keeps them


@dataclass(frozen=True, slots=True)
class Present:
    """The batches of one sink and one query in a branch."""

    subject: str  # the sink, in words
    last: int | None  # the query's newest batch in the branch; None if unknown
    ends: Mapping[int, str]  # digest of the end offsets by batch, as far as marks are retained


def present(subject: str, query_id: str, marks: Sequence[Mark], ledger: LedgerEntry | None) -> Present | None:
    """Return what a branch shows of a query; None if the branch shows nothing of it.

    `ledger` is the ledger entry; None unless its batch is in the branch.
    """
    own = [mark for mark in marks if mark.query_id == query_id]
    ends = {mark.batch_id: mark.end for mark in own}
    if ledger is not None and ledger.query_id == query_id:
        return Present(subject, ledger.batch_id, ends | {ledger.batch_id: ledger.end})
    return Present(subject, max(ends), ends) if own else None


def read_done(root: str) -> Done:
    """Read a checkpoint, given as a path or URI."""
    checkpoint = opened(root)
    if checkpoint.files.read("metadata") is None:
        raise QueryError.of("CHECKPOINT_UNREADABLE.audited", root=redact(root)[:80], why="it has no metadata file")
    query_id = checkpoint.query_id()
    batches, known = tuple(checkpoint.batches("commits")), set(checkpoint.batches("offsets"))
    ends = {batch_id: digest(checkpoint.offsets(batch_id).by_source) for batch_id in batches if batch_id in known}
    return Done(query_id, batches, ends)


def compare(done: Done, present: Iterable[Present | None]) -> Iterator[Finding | Note]:
    """Every completed batch must be in the table, and be the same batch."""
    found = [one for one in present if one is not None]
    if not done.batches:
        yield Note("checkpoint", "", f"Query {done.query_id} has not completed a batch yet: nothing to compare.")
    elif not found:
        text = f"Query {done.query_id} completed batches up to {done.batches[-1]}; the table shows none of them."
        yield Finding(Code.CHECKPOINT_UNKNOWN, "", text, tuple(map(str, done.batches)))
    else:
        for one in found:
            yield from _compare(done, one)


def _compare(done: Done, one: Present) -> Iterator[Finding | Note]:
    lacking = [batch_id for batch_id in done.batches if one.last is not None and batch_id > one.last]
    if lacking:
        text = f"Spark completed batches up to {lacking[-1]}; the newest batch in the table is {one.last}."
        yield Finding(Code.CHECKPOINT_AHEAD, one.subject, text, tuple(map(str, lacking)))
    other = [batch_id for batch_id, end in done.ends.items() if one.ends.get(batch_id, end) != end]
    if other:
        text = f"{counted(len(other), 'batch')} ended at other offsets than in the checkpoint, first {other[0]}."
        yield Finding(Code.CHECKPOINT_OFFSETS, one.subject, text, tuple(map(str, other)))
    if not lacking and not other:
        same = sum(batch_id in one.ends for batch_id in done.ends)
        oldest = min(one.ends, default=0)
        unseen = [batch_id for batch_id in done.batches if batch_id > oldest and batch_id not in one.ends]
        text = f"Every batch that Spark completed is in the table, up to {done.batches[-1]}"
        if unseen:
            text = f"Spark completed batches up to {done.batches[-1]}; the branch does not show"
            text = f"{text} {listed(map(str, unseen))}"
        yield Note("checkpoint", one.subject, f"{text}; {counted(same, 'batch')} compared by offsets.")


def opened(root: str) -> Checkpoint:
    """Open a checkpoint outside Spark."""
    try:
        return Checkpoint(FsspecFiles(root))
    except (ImportError, ValueError) as error:
        raise QueryError.of("CHECKPOINT_UNREADABLE.audited", root=redact(root)[:80], why=describe(error)) from None
