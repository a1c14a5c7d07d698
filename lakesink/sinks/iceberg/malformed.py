"""Decides whether a batch with malformed documents may commit, and describes them, from the receipts of its tasks."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakesink_protocol.errors import WriteError
from lakesink_protocol.receipt import MOST_MISFITS, Misfit, Receipt

_ROOM = 165
"""Characters available for a first line after its code."""
_LOOK = "Correct the documents at their source, or the table's columns; the page on decoding says which values fit."


def check_documents(votes: Sequence[Receipt], batch_id: int) -> None:
    """Refuse a batch that a task votes against, or whose documents are all malformed."""
    if any(vote.refused for vote in votes):
        raise _some_malformed(votes, batch_id)
    rows, malformed = sum(vote.rows for vote in votes), sum(vote.decoded.malformed_rows for vote in votes)
    if malformed == rows and any(vote.documents for vote in votes):
        raise _all_malformed(votes, batch_id, malformed)


def in_words(misfit: Misfit) -> str:
    """One malformed value: place, column, expected type and found value."""
    column = f"column {misfit.column}: " if misfit.column else ""
    return f"{misfit.place}: {column}{misfit.expected} expected, found {misfit.found}"


def first_of(votes: Iterable[Receipt]) -> Misfit | None:
    """The first malformed value that a task described; None if there is none."""
    return next((misfit for vote in votes for misfit in vote.misfits), None)


def _some_malformed(votes: Sequence[Receipt], batch_id: int) -> WriteError:
    malformed = sum(vote.decoded.malformed_rows for vote in votes)
    some_stopped = any(len(vote.misfits) == MOST_MISFITS for vote in votes)
    count = f"{'At least ' if some_stopped else ''}{malformed:,}"
    return WriteError(
        "VALUE_MALFORMED",
        _with_first(f"{count} malformed document{'' if malformed == 1 else 's'} in batch {batch_id}", votes),
        data=f"Nothing of batch {batch_id} was committed.",
        action=f"{_LOOK} A filter in the query leaves documents out; on_malformed='null-row' writes a row of NULLs in"
        " their place.",
        details=_details(votes),
    )


def _all_malformed(votes: Sequence[Receipt], batch_id: int, malformed: int) -> WriteError:
    every = "The only document" if malformed == 1 else f"All {malformed:,} documents"
    return WriteError(
        "ALL_MALFORMED",
        _with_first(f"{every} of batch {batch_id} {'is' if malformed == 1 else 'are'} malformed", votes),
        data=f"Nothing of batch {batch_id} was committed: it would be rows of NULLs only.",
        action=f"{_LOOK} To go on without these documents, filter them in the query, for example by Kafka's partition"
        " and offset; the batch then commits without them.",
        details=_details(votes),
    )


def _with_first(what: str, votes: Sequence[Receipt]) -> str:
    """A first line that ends with the first malformed value; a long place keeps its end, which is more specific."""
    first = first_of(votes)
    if first is None:
        return f"{what}."
    what = f"{what}; the first: "
    room = _ROOM - len(what) - len(in_words(replace(first, place="")))
    place = first.place if len(first.place) <= room else f"...{first.place[3 - max(room, 24) :]}"
    return f"{what}{in_words(replace(first, place=place))}."


def _details(votes: Iterable[Receipt]) -> list[str]:
    return [in_words(misfit) for vote in sorted(votes, key=lambda vote: vote.task) for misfit in vote.misfits][
        :MOST_MISFITS
    ]
