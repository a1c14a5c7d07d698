"""Decides whether a batch with malformed documents or unmet rows may commit, from the receipts of its tasks."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.quality import together
from lakesink_protocol.receipt import MOST_MISFITS, Misfit, Receipt

_ROOM = 165
"""Characters available for a first line after its code."""


def check_documents(receipts: Sequence[Receipt], batch_id: int, *, changes_by_key: bool) -> None:
    """Refuse a batch if one of its tasks refused it."""
    if any(receipt.refused for receipt in receipts):
        malformed = counted(sum(receipt.malformed for receipt in receipts), "malformed document")
        at_least = "At least " if any(len(receipt.misfits) == MOST_MISFITS for receipt in receipts) else ""
        what = _with_first(f"{at_least}{malformed} in batch {batch_id}", receipts)
        code = "VALUE_MALFORMED.in_changes" if changes_by_key else "VALUE_MALFORMED.in_rows"
        raise WriteError.of(code, details=_details(receipts), what=what, batch_id=batch_id)


def _with_first(what: str, receipts: Sequence[Receipt]) -> str:
    """A first line that ends with the first malformed value; a long place is cut at its start."""
    first = next((misfit for receipt in receipts for misfit in receipt.misfits), None)
    if first is None:
        return f"{what}."
    what = f"{what}; the first: "
    room = _ROOM - len(what) - len(_in_words(replace(first, place="")))
    place = first.place if len(first.place) <= room else f"...{first.place[3 - max(room, 24) :]}"
    return f"{what}{_in_words(replace(first, place=place))}."


def _in_words(misfit: Misfit) -> str:
    """One malformed value: place, column, expected type and found value."""
    column = f"column {misfit.column}: " if misfit.column else ""
    return f"{misfit.place}: {column}{misfit.expected} expected, found {misfit.found}"


def _details(receipts: Iterable[Receipt]) -> list[str]:
    ordered = sorted(receipts, key=lambda receipt: receipt.task)
    return [_in_words(misfit) for receipt in ordered for misfit in receipt.misfits][:MOST_MISFITS]


def check_expectations(receipts: Sequence[Receipt], expected: Sequence[Expected], batch_id: int) -> None:
    """Refuse a batch if a row does not meet an expectation that fails the batch."""
    unmet = together(receipt.quality for receipt in receipts).unmet
    failed = [one for one in expected if one.on_unmet is OnUnmet.FAIL and unmet[one.name]]
    if not failed:
        return
    worst = max(failed, key=lambda one: unmet[one.name])
    rows = counted(sum(receipt.rows for receipt in receipts), "row")
    verb = "does" if unmet[worst.name] == 1 else "do"
    more = f", and {len(failed) - 1} more expectations" if len(failed) > 2 else ", and one more" if failed[1:] else ""
    raise WriteError.of(
        "EXPECTATION_UNMET",
        details=[f"{one.name}: {counted(unmet[one.name], 'row')}" for one in failed],
        unmet=unmet[worst.name],
        rows=rows,
        batch_id=batch_id,
        verb=verb,
        name=worst.name,
        more=more,
    )
