"""The expectations of a sink: by the marks of its rows, or by the option for documents."""

import pyarrow as pa

from lakesink.rows.expectations import Expected, expected_in
from lakesink.rows.plan import WritePlan
from lakesink.settings.conditions import condition_unsupported, read_condition
from lakesink.settings.settings import Settings
from lakesink.task.task import condition_on
from lakesink_protocol.errors import WriteError


def expected_of(rows: pa.Schema, settings: Settings) -> tuple[Expected, ...]:
    """The expectations of rows of this schema; raises WriteError for marks that are none, or are on documents."""
    try:
        marked = expected_in(rows)
    except ValueError as error:
        raise WriteError.of("SCHEMA_MISMATCH.marks", why=str(error)) from None
    if not settings.decode:
        return marked
    if marked:
        raise WriteError.of("SCHEMA_MISMATCH.marked_documents", name=marked[0].name)
    conditions = settings.expect.items()
    return tuple(Expected(name, one.on_unmet, read_condition(name, one.condition)) for name, one in conditions)


def check_conditions(settings: Settings, plan: WritePlan) -> None:
    """Check that each condition on documents has a meaning on the table's columns; raises SettingsError."""
    if not settings.decode:
        return
    conditions = [(one.name, one.condition) for one in expected_of(pa.schema([]), settings)]
    if plan.changes is not None and plan.changes.deletes is not None:
        conditions.append(("apply_as_deletes", plan.changes.deletes))
    for name, condition in conditions:
        try:
            condition_on(plan, condition)
        except ValueError as error:
            raise condition_unsupported(name, error) from None
