"""Number and total size of the markers, in a small file that reveals a lost or truncated marker. Pure.

The file is written after the marker, so it may be behind, but never ahead. If it is missing or unreadable, a start
reads every marker once.
"""

import json
from dataclasses import asdict, dataclass

HIGH_WATER_VERSION = 1


@dataclass(frozen=True, slots=True)
class HighWater:
    """A lower bound of a sink's history: how many markers were created from number 0, and their total size."""

    count: int
    size_bytes: int

    def to_bytes(self) -> bytes:
        """The content of the file."""
        return json.dumps({"version": HIGH_WATER_VERSION, **asdict(self)}, separators=(",", ":")).encode() + b"\n"


def parse_high_water(data: bytes | None) -> HighWater | None:
    """The high water in a file; None if it is missing, torn, or of another version."""
    if data is None:
        return None
    try:
        document = json.loads(data)
        version, count, size_bytes = (document[name] for name in ("version", "count", "size_bytes"))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    known = version == HIGH_WATER_VERSION and all(type(value) is int and value >= 0 for value in (count, size_bytes))
    return HighWater(count, size_bytes) if known else None
