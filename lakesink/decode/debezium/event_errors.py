"""The errors of change events, apart from values that do not fit."""

from collections.abc import Sequence

from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError

MOST_PLACES = 20
"""Places that one error names."""


def operation_unknown(places: Sequence[str], count: int) -> WriteError:
    """Documents are no change events, or have an operation that is unknown."""
    return WriteError(
        "OPERATION_UNKNOWN",
        f"{counted(count, 'document')} of a task {'is' if count == 1 else 'are'} no Debezium change "
        f"{'event' if count == 1 else 'events'}: no operation c, u, d, r, t or m. The first: {places[0][-60:]}.",
        action="Subscribe to the topic of one table only, without heartbeats and transaction metadata. If the events "
        "are flattened (ExtractNewRecordState), use mode='upsert' with decode='json' or 'avro', or remove that "
        "transform.",
        details=places[:MOST_PLACES],
    )


def truncated(place: str) -> WriteError:
    """The source table was truncated."""
    return WriteError(
        "TRUNCATE",
        f"The source table was truncated, at {place[-60:]}. lakesink never empties a table because of an event.",
        action="Delete the rows of the table yourself, if that is wanted, and leave these events out: set "
        "skipped.operations=t in Debezium, or filter them in the query.",
    )


def key_missing(places: Sequence[str], count: int, keys: Sequence[str]) -> WriteError:
    """The row before a delete or an update lacks columns of the key."""
    return WriteError(
        "KEY_MISSING",
        f"{counted(count, 'event')} of a task delete or update a row without telling its whole key "
        f"({', '.join(keys)[:25]}). The first: {places[0][-60:]}.",
        action="Let the database log the whole row: ALTER TABLE ... REPLICA IDENTITY FULL in PostgreSQL, "
        "binlog_row_image=FULL in MySQL. Or let keys be the columns of the messages' keys (message.key.columns).",
        details=places[:MOST_PLACES],
    )
