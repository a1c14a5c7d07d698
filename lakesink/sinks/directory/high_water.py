"""How many markers were created, and their size: by this small file a lost or cut marker is noticed. Pure.

It is written after the marker, so it may lag behind and never runs ahead. Without it, or if it is unreadable, a start
reads every marker once.
"""

import json
from dataclasses import asdict, dataclass

HIGH_WATER_VERSION = 1


@dataclass(frozen=True, slots=True)
class HighWater:
    """A lower bound of a sink's history.

    Attributes:
        count: Markers that were created, from number 0.
        size_bytes: Size of all of them together.
    """

    count: int
    size_bytes: int

    def to_bytes(self) -> bytes:
        """The file."""
        return json.dumps({"version": HIGH_WATER_VERSION, **asdict(self)}, separators=(",", ":")).encode() + b"\n"


def parse_high_water(data: bytes | None) -> HighWater | None:
    """What a file states; None if it is missing, torn, or of another version."""
    if data is None:
        return None
    try:
        document = json.loads(data)
        version, count, size_bytes = (document[name] for name in ("version", "count", "size_bytes"))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    known = version == HIGH_WATER_VERSION and all(type(value) is int and value >= 0 for value in (count, size_bytes))
    return HighWater(count, size_bytes) if known else None
