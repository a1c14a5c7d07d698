"""Checks that a sink's batches on a branch follow each other without gaps, repetitions or steps back. Pure.

Each batch of a stream follows the previous one by one; a new query, on a new checkpoint, begins with 0. After a
cherry-pick of an expired snapshot, any batch may follow. Versions of a transaction application only grow. A finding
that an operator accepted is still reported, as accepted: the rows are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakesink_catalog.words import counted
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import Mark
from lakesink_tools.audit.finding import Code, Finding
from lakesink_tools.past.records import runs


@dataclass(frozen=True, slots=True)
class Chain:
    """One sink's batches on its branch, and what else the branch shows."""

    subject: str
    key: SinkKey
    marks: Sequence[Mark | None]  # in the ancestry, oldest first; None where any batch may have been added
    complete: bool  # True if the ancestry reaches the table's first snapshot
    others: Sequence[Mark] = ()  # of all sinks, oldest first: a fork or a new sink id can add batches of the same query
    epochs: frozenset[tuple[str, int]] = frozenset()  # query and batch of what Iceberg's own Spark sink wrote


def breaks(chain: Chain) -> Iterator[Finding]:
    """Errors in the order of a sink's batches, and which of them an operator accepted."""
    yield from _doubled(chain)
    yield from _accepted(chain)
    moving = [mark for mark in chain.marks if mark is None or mark.ledger_batch_id == mark.batch_id]
    previous: Mark | None = None
    seen = chain.complete
    for mark in moving:
        if mark is not None and seen:
            yield from _break(chain, previous, mark)
        previous, seen = mark, mark is not None


def _doubled(chain: Chain) -> Iterator[Finding]:
    """Batches whose rows were added twice, the second time by this sink, accepted or not."""
    seen: set[tuple[str, ...]] = set()
    doubled: dict[int, bool] = {}
    for mark in (mark for mark in chain.others if mark.adds_rows):
        names = {_batch(mark), _place(mark)} if not mark.accepted else {_batch(mark)}
        if names & seen and mark.key == chain.key:
            doubled[mark.batch_id] = doubled.get(mark.batch_id, True) and bool(mark.accepted)
        seen |= {_batch(mark), _place(mark)}
    for accepted in (False, True):
        found = sorted(batch_id for batch_id, by_operator in doubled.items() if by_operator is accepted)
        if found:
            text = f"{len(found):,} of its batches are committed twice{_by_operator(accepted)}: {_ranges(found)}."
            yield Finding(Code.BATCH_TWICE, chain.subject, text, tuple(map(str, found)), accepted=accepted)


def _batch(mark: Mark) -> tuple[str, ...]:
    """Identify a batch across sink ids and branches; for an application, the name stands for the query."""
    query = mark.query_id if mark.key.kind is SinkKind.STREAM else f"application {mark.key.name}"
    return (query, str(mark.batch_id), mark.fingerprint)


def _place(mark: Mark) -> tuple[str, ...]:
    """Identify the place of a batch in its own sink, independent of its data."""
    return (mark.key.ledger_property, mark.query_id, str(mark.batch_id))


def _accepted(chain: Chain) -> Iterator[Finding]:
    """Batches that an operator accepted, with the refusal that was overruled; an adoption is not reported."""
    words = [mark for mark in chain.marks if mark is not None and mark.accepted and not _is_adoption(chain, mark)]
    if words:
        found = f"Accepted by an operator: {', '.join(f'{mark.batch_id} ({_word(mark)})' for mark in words)}."
        items = tuple(str(mark.batch_id) for mark in words)
        yield Finding(Code.BATCH_ACCEPTED, chain.subject, found, items, accepted=True)
    skipped = [mark for mark in words if not mark.adds_rows]
    there = {_batch(mark) for mark in chain.others if mark.adds_rows} if skipped else set()
    left_out = sorted(mark.batch_id for mark in skipped if _batch(mark) not in there)
    if left_out and chain.complete:
        found = f"Skipped by an operator, and their rows are missing: {_ranges(left_out)}."
        yield Finding(Code.BATCH_GAP, chain.subject, found, tuple(map(str, left_out)), accepted=True)


def _is_adoption(chain: Chain, mark: Mark) -> bool:
    """True for the first ledger batch after `lakesink adopt`: Iceberg's own sink wrote its rows, or they expired."""
    begins = mark.accepted.startswith("UnknownHistory:") and not mark.adds_rows
    return begins and ((mark.query_id, mark.batch_id) in chain.epochs or not chain.complete)


def _break(chain: Chain, previous: Mark | None, mark: Mark) -> Iterator[Finding]:
    key, accepted = chain.key, bool(mark.accepted)
    if (key.kind is SinkKind.TXN and (accepted or previous is None)) or _is_adoption(chain, mark):
        return
    same_query = previous is not None and previous.query_id == mark.query_id
    last = previous.batch_id if previous is not None and same_query else -1
    if mark.batch_id < last:
        found = f"Batch {mark.batch_id} was committed after batch {last}{_by_operator(accepted)}."
        yield Finding(Code.BATCH_ORDER, chain.subject, found, (str(mark.batch_id),), accepted=accepted)
    elif mark.batch_id > last + 1 and key.kind is SinkKind.STREAM:
        # Under any sink id, and also those that were accepted later.
        marked = {one.batch_id for one in chain.others if one.query_id == mark.query_id}
        there = marked | {batch_id for query_id, batch_id in chain.epochs if query_id == mark.query_id}
        missing = [batch_id for batch_id in range(last + 1, mark.batch_id) if batch_id not in there]
        if not missing:
            return
        before = "the table's beginning" if previous is None else f"batch {previous.batch_id}"
        other = "" if same_query or previous is None else " of another query"
        is_whole = len(missing) == mark.batch_id - last - 1
        which = f"batches {f'{missing[0]} to {missing[-1]}' if is_whole else _ranges(missing)} are"
        span = f"batch {missing[0]} is" if len(missing) == 1 else which
        found = f"Batch {mark.batch_id} follows {before}{other}{_by_operator(accepted)}: {span} missing."
        yield Finding(Code.BATCH_GAP, chain.subject, found, (_ranges(missing),), accepted=accepted)


def _by_operator(accepted: bool) -> str:  # noqa: FBT001 - what the words are about
    return ", as an operator accepted" if accepted else ""


def _ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers: ``3, 5-9``."""
    parts = runs(numbers)
    shown = ", ".join(parts[:10])
    return shown if len(parts) <= 10 else f"{shown}, ..."


def _word(mark: Mark) -> str:
    files = counted(mark.missing_inputs, "input file")
    return f"{mark.accepted}, without {files}" if mark.missing_inputs else mark.accepted
