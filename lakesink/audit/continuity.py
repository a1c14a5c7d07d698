"""Whether a sink's batches on a branch follow each other without a gap, a repetition or a jump back. Pure.

Each batch of a stream is the one after the batch before it; a new query, on a new checkpoint, begins with 0. A batch
that a human let in breaks the chain by permission, and the chain goes on from there. So it does after a cherry-pick of
what has expired, which may have brought any batch. Versions of a transaction application only grow.
"""

from collections.abc import Iterator, Sequence

from lakesink.audit.finding import Code, Finding
from lakesink_catalog.identity import SinkKey, SinkKind
from lakesink_catalog.ledger import Mark


def breaks(subject: str, key: SinkKey, marks: Sequence[Mark | None], *, complete: bool) -> Iterator[Finding]:
    """What is wrong with the order of a sink's batches.

    Args:
        subject: The sink in words.
        key: The sink.
        marks: Its marks on the branch's walk, oldest first; None where any batch may have come.
        complete: True if the walk reaches the table's first snapshot, so that nothing came before.
    """
    doubled = _doubled([mark for mark in marks if mark is not None])
    if doubled:
        found = f"{len(doubled):,} of its batches are there more than once: {_ranges(doubled)}."
        yield Finding(Code.BATCH_TWICE, subject, found, tuple(map(str, doubled)))
    chain = [mark for mark in marks if mark is None or mark.ledger_batch_id == mark.batch_id]
    previous: Mark | None = None
    seen = complete
    for mark in chain:
        if mark is not None and seen:
            yield from _break(subject, key, previous, mark)
        previous, seen = mark, mark is not None


def _doubled(marks: Sequence[Mark]) -> list[int]:
    """Batches that came twice without a human's word."""
    seen: set[tuple[str, int]] = set()
    doubled = set()
    for mark in marks:
        batch = (mark.query_id, mark.batch_id)
        if batch in seen and not mark.accepted:
            doubled.add(mark.batch_id)
        seen.add(batch)
    return sorted(doubled)


def _break(subject: str, key: SinkKey, previous: Mark | None, mark: Mark) -> Iterator[Finding]:
    if mark.accepted or (key.kind is SinkKind.TXN and previous is None):
        return
    same_query = previous is not None and previous.query_id == mark.query_id
    last = previous.batch_id if previous is not None and same_query else -1
    if mark.batch_id < last:
        found = f"Batch {mark.batch_id} was committed after batch {last}."
        yield Finding(Code.BATCH_ORDER, subject, found, (str(mark.batch_id),))
    elif mark.batch_id > last + 1 and key.kind is SinkKind.STREAM:
        missing = range(last + 1, mark.batch_id)
        before = "the table's beginning" if previous is None else f"batch {previous.batch_id}"
        other = "" if same_query or previous is None else " of another query"
        found = f"Batch {mark.batch_id} follows {before}{other}: {_span(missing[0], missing[-1])} missing."
        yield Finding(Code.BATCH_GAP, subject, found, (_ends(missing[0], missing[-1]),))


def _span(first: int, last: int) -> str:
    return f"batch {first} is" if first == last else f"batches {first} to {last} are"


def _ends(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _ranges(numbers: Sequence[int]) -> str:
    """``3, 5-9``: ascending numbers, short."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    shown = ", ".join(_ends(*part) for part in parts[:10])
    return shown if len(parts) <= 10 else f"{shown}, ..."
