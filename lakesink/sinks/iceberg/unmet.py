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
_ADVICE = "Correct the documents at their source, or the table's columns; the page on decoding lists valid values."
_ROWS_WITHOUT = (
    "Filter these documents in the query.",
    "Set on_malformed='quarantine', which writes each into a table of dead letters.",
)
_CHANGES_WITHOUT = ("Filter these documents in the query; the table then lacks their changes.",)
"""Dead letters are for appends only."""


def check_documents(receipts: Sequence[Receipt], batch_id: int, *, changes_by_key: bool) -> None:
    """Refuse a batch if one of its tasks refused it."""
    if any(receipt.refused for receipt in receipts):
        raise _some_malformed(receipts, batch_id, _CHANGES_WITHOUT if changes_by_key else _ROWS_WITHOUT)


def _some_malformed(receipts: Sequence[Receipt], batch_id: int, without: Sequence[str]) -> WriteError:
    malformed = sum(receipt.malformed for receipt in receipts)
    some_stopped = any(len(receipt.misfits) == MOST_MISFITS for receipt in receipts)
    count = f"{'At least ' if some_stopped else ''}{counted(malformed, 'malformed document')}"
    return WriteError(
        "VALUE_MALFORMED",
        _with_first(f"{count} in batch {batch_id}", receipts),
        data=f"Nothing of batch {batch_id} was committed.",
        action=(_ADVICE, *without),
        details=_details(receipts),
    )


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
    raise WriteError(
        "EXPECTATION_UNMET",
        f"{unmet[worst.name]:,} of {rows} of batch {batch_id} {verb} not meet the expectation {worst.name}{more}.",
        data=f"Nothing of batch {batch_id} was committed.",
        action=(
            "Correct the rows at their source, or the condition. A row must make it true; NULL is not true.",
            "Filter these rows in the query.",
            f"Let them in and count them: expect={{'{worst.name}': ('<condition>', 'warn')}}.",
        ),
        details=[f"{one.name}: {counted(unmet[one.name], 'row')}" for one in failed],
    )


def marks_invalid(why: str) -> WriteError:
    """The error for a column with a name of marks that are none."""
    return WriteError(
        "SCHEMA_MISMATCH",
        f"The rows have no valid expectations: {why}.",
        action="Leave such columns out of the query; lakesink.with_expectations adds them.",
    )
