"""Whether every batch that Spark calls done is in the table: Spark's ``commits`` beside the ledger and the marks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakesink.audit.finding import Code, Finding, Note, counted, listed
from lakesink.checkpoint.folder import Checkpoint, FsspecFiles
from lakesink_protocol.errors import QueryError
from lakesink_protocol.identity import digest
from lakesink_protocol.ledger import Mark
from lakesink_protocol.redact import describe, redact


@dataclass(frozen=True, slots=True)
class Done:
    """What a checkpoint says.

    Attributes:
        query_id: Its query.
        batches: Batches that Spark calls done and still lists, ascending.
        ends: Digest of the offsets where a batch ended, by batch, as far as they are still there.
    """

    query_id: str
    batches: tuple[int, ...]
    ends: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Present:
    """What a branch says of one sink and one query.

    Attributes:
        subject: The sink in words.
        last: The query's newest batch that is in the branch; None if it cannot be told any more.
        ends: Digest of the offsets where a batch ended, by batch, as far as marks are retained.
    """

    subject: str
    last: int | None
    ends: Mapping[int, str]


def present(subject: str, query_id: str, marks: Sequence[Mark], ledger: tuple[str, int, str] | None) -> Present | None:
    """What a branch says of a query; None if it knows nothing of it.

    Args:
        subject: The sink in words.
        query_id: The query.
        marks: The sink's marks on the branch's walk.
        ledger: Query, batch and end of the ledger entry, if its batch is in the branch.
    """
    own = [mark for mark in marks if mark.query_id == query_id]
    ends = {mark.batch_id: mark.end for mark in own}
    if ledger is not None and ledger[0] == query_id:
        return Present(subject, ledger[1], ends | {ledger[1]: ledger[2]})
    return Present(subject, max(ends), ends) if own else None


def read_done(root: str) -> Done:
    """Read a checkpoint.

    Args:
        root: Path or URI.

    Raises:
        QueryError: It cannot be read.
    """
    checkpoint = opened(root)
    if checkpoint.files.read("metadata") is None:
        raise _no_checkpoint(root, "it has no metadata file")
    query_id = checkpoint.query_id()
    batches = _numbers(checkpoint, "commits")
    known = set(_numbers(checkpoint, "offsets"))
    ends = {batch_id: digest(checkpoint.offsets(batch_id).by_source) for batch_id in batches if batch_id in known}
    return Done(query_id, batches, ends)


def compare(done: Done, found: Sequence[Present]) -> Iterator[Finding | Note]:
    """Every batch that is done must be in the table, and be the same one.

    Args:
        done: What the checkpoint says.
        found: What the table says of that query, by sink.
    """
    if not done.batches:
        yield Note("checkpoint", "", f"Query {done.query_id} has no batch done yet: there is nothing to prove.")
    elif not found:
        text = f"Query {done.query_id} calls batches up to {done.batches[-1]} done; the table shows none of them."
        yield Finding(Code.CHECKPOINT_UNKNOWN, "", text, tuple(map(str, done.batches)))
    else:
        for one in found:
            yield from _compare(done, one)


def _compare(done: Done, one: Present) -> Iterator[Finding | Note]:
    lacking = [batch_id for batch_id in done.batches if one.last is not None and batch_id > one.last]
    if lacking:
        text = f"Spark calls batches up to {lacking[-1]} done; the newest in the table is {one.last}."
        yield Finding(Code.CHECKPOINT_AHEAD, one.subject, text, tuple(map(str, lacking)))
    other = [batch_id for batch_id, end in done.ends.items() if one.ends.get(batch_id, end) != end]
    if other:
        text = f"{counted(len(other), 'batch')} ended at other offsets than the checkpoint has: {other[0]} first."
        yield Finding(Code.CHECKPOINT_OFFSETS, one.subject, text, tuple(map(str, other)))
    if not lacking and not other:
        same = sum(batch_id in one.ends for batch_id in done.ends)
        oldest = min(one.ends, default=0)
        unseen = [batch_id for batch_id in done.batches if batch_id > oldest and batch_id not in one.ends]
        text = f"Every batch that Spark calls done is in the table, up to {done.batches[-1]}"
        if unseen:
            text = f"Spark calls batches up to {done.batches[-1]} done; before it the branch does not show"
            text = f"{text} {listed(map(str, unseen))}"
        yield Note("checkpoint", one.subject, f"{text}; {counted(same, 'batch')} compared by offsets.")


def opened(root: str) -> Checkpoint:
    """A checkpoint to be read from outside of Spark.

    Raises:
        QueryError: Nothing here reads that kind of storage.
    """
    try:
        return Checkpoint(FsspecFiles(root))
    except (ImportError, ValueError) as error:
        raise _no_checkpoint(root, describe(error)) from None


def _no_checkpoint(root: str, why: str) -> QueryError:
    return QueryError(
        "CHECKPOINT_UNREADABLE",
        f"{redact(root)[:80]!r} cannot be read as the checkpoint of a query: {why}.",
        data="Nothing was written: this command only reads.",
        action="Give the folder that the stream has as its checkpoint; for a remote one install fsspec's package.",
    )


def _numbers(checkpoint: Checkpoint, folder: str) -> tuple[int, ...]:
    names: Any = checkpoint.files.names(folder)
    return tuple(sorted(int(name) for name in names if name.isascii() and name.isdecimal()))
