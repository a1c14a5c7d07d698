"""Decides whether a batch whose rows do not meet an expectation may commit, from the receipts of its tasks."""

from collections.abc import Sequence

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.quality import together
from lakesink_protocol.receipt import Receipt


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
