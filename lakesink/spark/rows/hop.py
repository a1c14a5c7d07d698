"""How rows travel from the JVM to Python: as few checks as possible, and never an Arrow batch that outgrows memory.

Spark asks for an Arrow batch's size after every row to keep it below `MAX_BYTES`; on narrow rows that is near half of
the whole way. Its one value that skips the check leaves the number of rows as the only bound, so that number is set
from the width of the rows: measured where rows have been seen, guarded where they have not.

The same settings bound what Spark hands to Python functions of the user's own, whose rows may be far wider than those
that come out: they must never meet these values.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NO_BYTE_CHECK = "2147483647"
"""Exactly this value makes Spark skip the check; a larger one does not."""

BATCH_BYTES = 64 * 1024 * 1024
"""What an Arrow batch should stay below: Spark's own default."""

MOST_RECORDS = 32_768
"""For rows of bounded width: by `mapInArrow` Spark's own 10,000 would do, out of a plan these are faster."""

MOST_UNBOUNDED_RECORDS = 8192
"""For rows of unbounded width: whatever was seen, rows of 8 KiB still make a batch of `BATCH_BYTES`."""

UNSEEN_RECORDS = 1024
"""And while none was seen, rows of 64 KiB: what a first batch is made of nobody knows, and a heap may be small."""

HEADROOM = 16
"""Rows may become this many times as wide as the widest batch seen before a batch outgrows `BATCH_BYTES`."""

_BOUNDED_TYPES = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "void"}
)
_BOUNDED_PREFIXES = ("decimal", "interval", "time(")
_VALUE_BYTES = 16


def bounded_row_bytes(schema: Mapping[str, Any]) -> int | None:
    """Most bytes that a row of this schema can take in Arrow; None if there is no bound.

    Args:
        schema: A Spark schema as JSON, parsed.
    """
    widths = [_bounded_bytes(field["type"]) for field in schema["fields"]]
    return None if None in widths else sum(width for width in widths if width is not None)


def records_per_batch(row_bytes: int | None, widest_row_bytes: int) -> int:
    """Rows an Arrow batch may have without a check of its bytes.

    Args:
        row_bytes: Most bytes of a row by its schema, see `bounded_row_bytes`; None if there is no bound.
        widest_row_bytes: Largest mean row of an Arrow batch seen so far; 0 if none was seen.
    """
    if row_bytes is not None:
        return max(1, min(BATCH_BYTES // max(row_bytes, 1), MOST_RECORDS))
    if widest_row_bytes == 0:
        return UNSEEN_RECORDS
    return max(1, min(BATCH_BYTES // (widest_row_bytes * HEADROOM), MOST_UNBOUNDED_RECORDS))


def hop_settings(user_bytes: str | None, user_records: str | None, records: int) -> dict[str, str]:
    """What to set in the session, given what the user set there: nothing of it is changed.

    Args:
        user_bytes: The user's `MAX_BYTES`, or None.
        user_records: The user's `MAX_RECORDS`, or None.
        records: What `records_per_batch` allows.
    """
    if user_bytes is not None:
        return {}
    if user_records is None:
        return {MAX_BYTES: NO_BYTE_CHECK, MAX_RECORDS: str(records)}
    bounded = user_records.strip().isdigit() and 0 < int(user_records) <= records
    return {MAX_BYTES: NO_BYTE_CHECK} if bounded else {}


class HopTuning:
    """The settings of one session's jobs, kept right from batch to batch with as few calls as possible.

    Args:
        conf: The session's runtime configuration.
        schema: Schema of the rows as JSON, parsed.
        with_functions: True if Python functions compute the rows: they would be run by the settings of `apply`.
    """

    def __init__(self, conf: Any, schema: Mapping[str, Any], *, with_functions: bool = False) -> None:
        self._conf = conf
        self._with_functions = with_functions
        self._row_bytes = bounded_row_bytes(schema)
        self._user = {key: conf.get(key, None) for key in (MAX_BYTES, MAX_RECORDS)}
        self._set: dict[str, str] = {}
        self._widest = 0

    @property
    def widest_row_bytes(self) -> int:
        """Largest mean row of an Arrow batch seen so far; 0 if none was seen."""
        return self._widest

    @property
    def rows_may_bound(self) -> bool:
        """True if the user lets the number of rows alone bound an Arrow batch."""
        return bool(self._wanted())

    def apply(self) -> None:
        """Set what the next job over a DataFrame needs."""
        if self._with_functions:
            return
        for key, value in self._wanted().items():
            if self._set.get(key) != value:
                self._conf.set(key, value)
                self._set[key] = value

    @contextmanager
    def records_bounded(self) -> Iterator[None]:
        """Set the number of rows, all that bounds an Arrow batch out of a plan, for as long as Spark reads it."""
        records = self._wanted().get(MAX_RECORDS)
        before = self._set.get(MAX_RECORDS, self._user[MAX_RECORDS])
        if records is None or records == before:
            yield
            return
        self._conf.set(MAX_RECORDS, records)
        try:
            yield
        finally:
            self._put_back(MAX_RECORDS, before)

    def seen(self, widest_row_bytes: int) -> None:
        """Take in the largest mean row of an Arrow batch that a job saw."""
        self._widest = max(self._widest, widest_row_bytes)

    def restore(self) -> None:
        """Put back what the user had."""
        for key in self._set:
            self._put_back(key, self._user[key])
        self._set = {}

    def _wanted(self) -> dict[str, str]:
        records = records_per_batch(self._row_bytes, self._widest)
        return hop_settings(self._user[MAX_BYTES], self._user[MAX_RECORDS], records)

    def _put_back(self, key: str, value: str | None) -> None:
        self._conf.unset(key) if value is None else self._conf.set(key, value)


def _bounded_bytes(kind: Any) -> int | None:
    if isinstance(kind, Mapping):
        return bounded_row_bytes(kind) if kind.get("type") == "struct" else None
    bounded = kind in _BOUNDED_TYPES or str(kind).startswith(_BOUNDED_PREFIXES)
    return _VALUE_BYTES if bounded else None
