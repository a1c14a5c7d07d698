"""Options of changes: rows that replace or remove the row of their key."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from lakesink.settings.option import LONGEST_COLUMN_BYTES, Option, one_of, read_sql, read_text
from lakesink.settings.option_types import Deletes, LocateIn, OnAbsent, OnLate, OutputMode
from lakesink_protocol.row_changes import Mode

_MOST_COLUMNS = 32
_MOST_LEFT_OUT = 1_000


def _columns(value: Any, most: int = _MOST_COLUMNS) -> tuple[str, ...]:
    """Names of columns: a sequence, or text with commas between the names."""
    names = tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected a list of columns, or text such as 'region, order_id'")
    fit = all(name.strip() and len(name.encode()) <= LONGEST_COLUMN_BYTES for name in names)
    if not fit or not 0 < len(names) <= most:
        raise ValueError(f"expected 1 to {most} names of columns, each of at most {LONGEST_COLUMN_BYTES} bytes")
    if len({name.casefold() for name in names}) != len(names):
        raise ValueError("a column is named twice")
    return tuple(names)


OPTIONS_OF_CHANGES = (
    Option(
        "mode",
        one_of(Mode),
        "`append` adds every row. `upsert`: a row replaces the row of its key. `changes`: a row replaces or deletes the"
        " row of its key, as `apply_as_deletes` or a `decode` of Debezium's events says.",
        default="`append`; `upsert` in `lakesink.upsert`",
    ),
    Option(
        "keys",
        _columns,
        "The columns that identify a row: `['order_id']`, or `'region, order_id'`. They must be the identifier fields"
        " of the table, in any order; a table that lakesink creates gets them.",
        type="list of columns, or text",
        default="the table's identifier fields",
    ),
    Option(
        "sequence_by",
        _columns,
        "Stored columns that order the changes of a key: the greatest value wins, also against the stored row. Without"
        " it, the order of the stream is trusted.",
        type="list of columns, or text",
    ),
    Option(
        "apply_as_deletes",
        read_sql,
        "Condition in Spark SQL that is true for a delete: `\"op = 'd'\"`. NULL fails the batch. With"
        ' `decode`, it sees the decoded columns. Without, in `format("lakesink")`, the name of a BOOLEAN column, which'
        " is not stored.",
    ),
    Option(
        "except_column_list",
        partial(_columns, most=_MOST_LEFT_OUT),
        "Columns of the rows that are not stored: `['op']`. Those of documents are read as STRING.",
        type="list of columns, or text",
    ),
    Option(
        "deletes",
        one_of(Deletes),
        "`hard` removes the row. `soft` keeps it, with `_is_deleted = true` in that BOOLEAN column, so that a late"
        " change cannot bring it back.",
        default="`hard`",
    ),
    Option(
        "on_late",
        one_of(OnLate),
        "What happens to a change with a lower sequence than the stored row: `ignore` counts it, `fail` fails the"
        " batch.",
        default="`ignore`",
    ),
    Option(
        "on_absent",
        one_of(OnAbsent),
        "What happens to a replayed change of a key that has no row, because a later delete may have removed it: `fail`"
        " fails the replay, `insert` says that none did. With `deletes='soft'`, the table itself knows.",
        default="`fail`",
    ),
    Option(
        "changelog_table",
        read_text,
        "Table that gets every change of a batch as a row, for streams that read changes. lakesink creates it.",
    ),
    Option(
        "output_mode",
        one_of(OutputMode),
        "Spark's output mode of the query: `update` for aggregations whose results replace earlier ones.",
        default="`append`",
    ),
    Option(
        "locate_in",
        one_of(LocateIn),
        "Where the stored rows of the keys are found: in the `driver`, or in Spark's `executors`. `auto` decides by the"
        " size of the key columns that must be read.",
        default="`auto`",
    ),
)
