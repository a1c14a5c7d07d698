"""Limits of the Arrow batches between the JVM and Python: few checks, and no batch that is larger than memory allows.

Spark checks an Arrow batch's size after every row to keep it below `MAX_BYTES`. For narrow rows this takes almost half
of the transfer time. One value skips the check; then the number of rows is the only limit. That number is computed from
the measured width of rows, and is small until rows were measured.

The same settings limit what Spark passes to the user's Python functions, whose input rows may be far wider than their
output rows. These values must never apply there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NO_BYTE_CHECK = "2147483647"
"""Spark skips the check for exactly this value, and not for a larger one."""

BATCH_BYTES = 64 * 1024 * 1024
"""Size that an Arrow batch should not exceed: Spark's default."""

MOST_RECORDS = 32_768
"""For rows of bounded width. Spark's default of 10,000 is enough for `mapInArrow`; `PlanRows` is faster with more."""

MOST_UNBOUNDED_RECORDS = 8192
"""For rows of unbounded width, after any measurement: rows of 8 KiB still fit `BATCH_BYTES`."""

UNMEASURED_RECORDS = 1024
"""For rows of unbounded width before any measurement: rows of 64 KiB fit `BATCH_BYTES`, and the heap may be small."""

MESSAGE_BYTES = 240 * 1024
"""Size of an Arrow batch from a plan. Spark makes it in arrays on the JVM's heap, which double as they grow. An array
above half a region of G1 (0.5 MiB in a heap below 4 GiB) gets regions of its own, and G1 marks the heap for them."""

LEAST_MESSAGE_RECORDS = 512
"""Below this, messages cost more than the heap does; and the widest batch may have been one wide row."""

LEAST_CHUNK_BYTES = 8 * 1024
"""Bytes of a column in a message. With less, each column costs more time in each message than the heap does."""

HEADROOM = 16
"""Rows may be this many times wider than the widest measured batch before a batch exceeds `BATCH_BYTES`."""

_BOUNDED_TYPES = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "void"}
)
_BOUNDED_PREFIXES = ("decimal", "interval", "time(")
_VALUE_BYTES = 16


def bounded_row_bytes(schema: Mapping[str, Any]) -> int | None:
    """Most bytes of a row of this schema (Spark's JSON) in Arrow; None if there is no bound."""
    widths = [_bounded_bytes(field["type"]) for field in schema["fields"]]
    return None if None in widths else sum(width for width in widths if width is not None)


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


def records_per_batch(row_bytes: int | None, widest_row_bytes: int) -> int:
    """Rows of an Arrow batch without a byte check: by the schema's bound of a row, else by the widest measured row."""
    if row_bytes is not None:
        return max(1, min(BATCH_BYTES // max(row_bytes, 1), MOST_RECORDS))
    if widest_row_bytes == 0:
        return UNMEASURED_RECORDS
    return max(1, min(BATCH_BYTES // (widest_row_bytes * HEADROOM), MOST_UNBOUNDED_RECORDS))


def records_per_message(records: int, columns: int, row_bytes: int) -> int:
    """Rows of an Arrow batch from a plan, at most `records`; `row_bytes` is 0 as long as it is not known."""
    if row_bytes == 0 or columns * LEAST_CHUNK_BYTES > MESSAGE_BYTES:
        return records
    return min(records, max(LEAST_MESSAGE_RECORDS, MESSAGE_BYTES // row_bytes))


def limit_settings(user_bytes: str | None, user_records: str | None, records: int) -> dict[str, str]:
    """The settings to change in the session; a value that the user has set never changes."""
    if user_bytes is not None:
        return {}
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
        self._with_functions = with_functions
        self._row_bytes = bounded_row_bytes(schema)
        self._columns = leaf_columns(schema)
        self._user = {key: conf.get(key, None) for key in (MAX_BYTES, MAX_RECORDS)}
        self._set: dict[str, str] = {}
        self.widest_row_bytes = 0

    @property
    def can_limit_by_rows(self) -> bool:
        """True if the user's settings allow the number of rows as the only limit of an Arrow batch."""
        return bool(self._wanted())

    def apply(self) -> None:
        """Set the limits for the next job over a DataFrame."""
        if self._with_functions:
            return
        for key, value in self._wanted().items():
            if self._set.get(key) != value:
                self._conf.set(key, value)
                self._set[key] = value

    @contextmanager
    def limit_records(self) -> Iterator[None]:
        """Limit the number of rows while Spark reads the setting: it is the only limit of Arrow batches from a plan."""
        before = self._set.get(MAX_RECORDS, self._user[MAX_RECORDS])
        own = self._wanted().get(MAX_RECORDS)
        self._put(MAX_RECORDS, before if own is None else str(self._per_message(int(own))))
        try:
            yield
        finally:
            self._put(MAX_RECORDS, before)

    def record_width(self, widest_row_bytes: int) -> None:
        """Record the largest mean row of a job's Arrow batches."""
        self.widest_row_bytes = max(self.widest_row_bytes, widest_row_bytes)

    def restore(self) -> None:
        """Restore the user's settings."""
        for key in self._set:
            self._put(key, self._user[key])
        self._set = {}

    def _per_message(self, records: int) -> int:
        return records_per_message(records, self._columns, self.widest_row_bytes or self._row_bytes or 0)

    def _wanted(self) -> dict[str, str]:
        records = records_per_batch(self._row_bytes, self.widest_row_bytes)
        return limit_settings(self._user[MAX_BYTES], self._user[MAX_RECORDS], records)

    def _put(self, key: str, value: str | None) -> None:
        self._conf.unset(key) if value is None else self._conf.set(key, value)


def _bounded_bytes(kind: Any) -> int | None:
    if isinstance(kind, Mapping):
        return bounded_row_bytes(kind) if kind.get("type") == "struct" else None
    bounded = kind in _BOUNDED_TYPES or str(kind).startswith(_BOUNDED_PREFIXES)
    return _VALUE_BYTES if bounded else None
