"""Limits of the Arrow batches between the JVM and Python: in bytes, because rows can be of any width.

Spark checks the size of an Arrow batch for a Python function after every row to keep it below `MAX_BYTES`. For narrow
rows this takes almost half of the transfer time. One value skips the check. It is set only if each column has a fixed
width: the number of rows then limits the bytes exactly. Arrow batches from a plan have a limit of their own.

The same settings limit what Spark passes to the user's Python functions, whose input rows may be far wider than their
output rows. These values must never apply there.
"""

from collections.abc import Mapping
from typing import Any

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NO_BYTE_CHECK = "2147483647"
"""Spark skips the check for exactly this value, and not for a larger one."""

BATCH_BYTES = 64 * 1024 * 1024
"""Size that an Arrow batch should not exceed: Spark's default."""

MOST_RECORDS = 32_768
"""For rows of bounded width."""

MESSAGE_BYTES = 240 * 1024
"""Size of an Arrow batch from a plan. Spark makes it in arrays on the JVM's heap, which double as they grow. An array
above half a region of G1 (0.5 MiB in a heap below 4 GiB) gets regions of its own, and G1 marks the heap for them."""

LEAST_CHUNK_BYTES = 8 * 1024
"""Bytes of a column in a message. With less, each column costs more time in each message than the heap does."""

_BOUNDED_TYPES = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "void"}
)
_BOUNDED_PREFIXES = ("decimal", "interval", "time(")
_VALUE_BYTES = 16


def bounded_row_bytes(kind: Any) -> int | None:
    """Most bytes of a row of this schema (Spark's JSON) in Arrow, or of a value of this type; None without a bound."""
    match kind:
        case {"type": "struct", "fields": fields}:
            widths = [bounded_row_bytes(field["type"]) for field in fields]
            return None if None in widths else sum(width for width in widths if width is not None)
        case str() if kind in _BOUNDED_TYPES or kind.startswith(_BOUNDED_PREFIXES):
            return _VALUE_BYTES
    return None


def leaf_columns(kind: Any) -> int:
    """The arrays of values in a batch of this schema (Spark's JSON), or of a column of this type."""
    match kind:
        case {"type": "struct", "fields": fields}:
            return sum(leaf_columns(field["type"]) for field in fields)
        case {"type": "array", "elementType": element}:
            return leaf_columns(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            return leaf_columns(key) + leaf_columns(value)
    return 1


def records_per_batch(row_bytes: int) -> int:
    """Rows of an Arrow batch without a byte check, by the schema's bound of a row."""
    return max(1, min(BATCH_BYTES // max(row_bytes, 1), MOST_RECORDS))


def message_bytes(schema: Mapping[str, Any], most: int) -> int:
    """Bytes of an Arrow batch from a plan of this schema (Spark's JSON), at most `most`, but one row at least."""
    return min(most, max(MESSAGE_BYTES, LEAST_CHUNK_BYTES * leaf_columns(schema)))


def message_records(schema: Mapping[str, Any], most: int) -> int:
    """Rows of an Arrow batch from a plan, at most `most` if that is above 0.

    A NULL struct has no bytes in Spark's row, by which the batch's size is counted, and a value in each array below it.
    """
    records = max(1, BATCH_BYTES // (_VALUE_BYTES * leaf_columns(schema)))
    return min(records, most) if most > 0 else records


def limit_settings(user_bytes: str | None, user_records: str | None, row_bytes: int | None) -> dict[str, str]:
    """The settings to change in the session; a value that the user has set never changes."""
    if user_bytes is not None or row_bytes is None:
        return {}
    records = records_per_batch(row_bytes)
    if user_records is None:
        return {MAX_BYTES: NO_BYTE_CHECK, MAX_RECORDS: str(records)}
    bounded = user_records.strip().isdigit() and 0 < int(user_records) <= records
    return {MAX_BYTES: NO_BYTE_CHECK} if bounded else {}


class ArrowBatchLimits:
    """The limits of one session's Arrow batches; with Python functions, `apply` does not change the user's settings.

    `widest_row_bytes` is the largest mean row of an Arrow batch so far; 0 if none was measured.
    """

    def __init__(self, conf: Any, schema: Mapping[str, Any], *, with_functions: bool = False) -> None:
        self._conf = conf
        self._user = {key: conf.get(key, None) for key in (MAX_BYTES, MAX_RECORDS)}
        own = limit_settings(self._user[MAX_BYTES], self._user[MAX_RECORDS], bounded_row_bytes(schema))
        self._own = {} if with_functions else own
        self._applied = False
        self.widest_row_bytes = 0

    def apply(self) -> None:
        """Set the limits for the next job over a DataFrame."""
        if not self._applied:
            for key, value in self._own.items():
                self._conf.set(key, value)
            self._applied = True

    def record_width(self, widest_row_bytes: int) -> None:
        """Record the largest mean row of a job's Arrow batches."""
        self.widest_row_bytes = max(self.widest_row_bytes, widest_row_bytes)

    def restore(self) -> None:
        """Restore the user's settings."""
        for key in self._own if self._applied else ():
            before = self._user[key]
            self._conf.unset(key) if before is None else self._conf.set(key, before)
        self._applied = False
