"""Counts of the documents that executors decoded for a batch. Pure; executors import this."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakesink_protocol.redact import redact, shown

MOST_NAMES = 10
LONGEST_NAME = 60
MALFORMED_ROWS, UNKNOWN_KEYS, UNKNOWN_NAMES = (
    "lakesink.malformed-rows",
    "lakesink.unknown-keys",
    "lakesink.unknown-key-names",
)
"""Summary properties of a batch's snapshot; zero counts and empty lists are left out."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Counts of one task, or of a batch.

    Attributes:
        malformed_rows: Rows of NULLs that replace documents that could not be decoded.
        unknown_keys: Number of non-null keys without a column in the table, in a sample of the documents: the first
            thousand of every 16 MiB.
        unknown_names: The first ten of their names in alphabetical order, as paths with dots.
    """

    malformed_rows: int = 0
    unknown_keys: int = 0
    unknown_names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON form for receipts and prepared records."""
        return {
            "malformed": self.malformed_rows,
            "unknown_keys": self.unknown_keys,
            "unknown_names": list(self.unknown_names),
        }

    def to_summary(self) -> dict[str, str]:
        """Properties for a snapshot's summary."""
        counts = {MALFORMED_ROWS: self.malformed_rows, UNKNOWN_KEYS: self.unknown_keys}
        found = {name: str(count) for name, count in counts.items() if count}
        return found | ({UNKNOWN_NAMES: self.names_text} if self.unknown_names else {})

    @property
    def names_text(self) -> str:
        """The names as a JSON list without spaces, for a log line or a summary."""
        return json.dumps(self.unknown_names, separators=(",", ":"), ensure_ascii=False)


def together(parts: Iterable[Decoded]) -> Decoded:
    """The sum of all parts."""
    found = list(parts)
    return Decoded(
        sum(part.malformed_rows for part in found),
        sum(part.unknown_keys for part in found),
        first_names(name for part in found for name in part.unknown_names),
    )


def first_names(names: Iterable[str]) -> tuple[str, ...]:
    """The first ten names, safe to show; the result does not depend on how the documents were split."""
    return tuple(sorted({redact(shown(name, LONGEST_NAME)) for name in names})[:MOST_NAMES])


def decoded_from(document: Mapping[str, Any]) -> Decoded:
    """The counts in a receipt or a prepared record, 0 if an earlier version did not write them; else ValueError."""
    malformed, unknown = document.get("malformed", 0), document.get("unknown_keys", 0)
    names = document.get("unknown_names", [])
    if not all(type(count) is int and 0 <= count < 2**63 for count in (malformed, unknown)):
        raise ValueError("a count is not a whole number from 0 to 2^63-1")
    if not isinstance(names, list) or len(names) > MOST_NAMES or not all(isinstance(name, str) for name in names):
        raise ValueError("the names of unknown keys are not a short list of texts")
    return Decoded(malformed, unknown, first_names(names))
