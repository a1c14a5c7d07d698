"""The rescue column: adds it to the table's schema, and validates its counts in receipts."""

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from lakesink.rows.task_errors import schema_mismatch, shown
from lakesink.sinks.iceberg.schema_advice import spark_type
from lakesink_catalog.tables.arrow_schema import RESERVED_NAMES
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.measures import RESCUED_ROWS
from lakesink_protocol.quality import OTHERS
from lakesink_protocol.receipt import Receipt
from lakesink_protocol.receipt_json import MOST_IN_A_BATCH
from lakesink_protocol.votes import receipt_rejected

_STRING = '"string"'


def rescue_column_change(schema: Schema, name: str) -> SchemaChange | None:
    """The change that adds the rescue column; None if the table has it, or the name is empty.

    Raises:
        WriteError: The table has another column of this name, or cannot have one.
    """
    if not name:
        return None
    present = next((field for field in schema.fields if field.name.casefold() == name.casefold()), None)
    why = _why_unusable(name, present)
    if why:
        raise schema_mismatch(
            f"The rescue column {shown(name)!r} {why}.",
            action="Give the option rescue_column a name that the table does not have, or the name of an optional"
            " column of STRING.",
        )
    return SchemaChange(added=(ColumnType((name,), _STRING),)) if present is None else None


def check_rescued(receipt: Receipt) -> None:
    """Refuse counts of rescued rows that contradict each other."""
    rescued, rows = receipt.quality.rescued, receipt.quality.counts[RESCUED_ROWS]
    by_reason = [count for reason, count in rescued.items() if reason != OTHERS]
    if rescued.get(OTHERS, 0) > MOST_IN_A_BATCH:
        raise receipt_rejected("a task reports more reasons of rescued rows than the limit")
    if not max(by_reason, default=0) <= rows <= sum(rescued.values()):
        raise receipt_rejected("a task's counts of rescued rows contradict each other")


def _why_unusable(name: str, present: NestedField | None) -> str:
    if name.lower() in RESERVED_NAMES:
        return "has a name that Iceberg reserves"
    if present is None:
        return ""
    if present.name != name:
        return f"differs only in case from {shown(present.name)!r}, and most engines cannot distinguish them"
    if not isinstance(present.field_type, StringType):
        return f"is {spark_type(present.field_type)} in the table, and must be STRING"
    return "is required in the table, and must be optional" if present.required else ""
