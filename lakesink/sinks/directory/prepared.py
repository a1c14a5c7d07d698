"""The prepared batch of the file sink: its closed parts, and the marker that it follows. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakesink.sinks.directory.ledger import Look
from lakesink.sinks.directory.part_formats import FORMATS
from lakesink.sinks.directory.part_receipt import Part, can_be_told, part_from_json
from lakesink_protocol.receipt import ReceiptInvalid
from lakesink_protocol.verdict import Commit

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class PreparedParts:
    """A batch that only needs its marker.

    Attributes:
        commit_id: Random id. It distinguishes this commit from another driver's of the same batch.
        directory_id: For the marker: the id of the marker before, or a new one for the first.
        follows: Digest of the newest marker when this was prepared; empty if there was none.
        accepted: The overruled refusal as the user spelled it; empty if none.
        begun_ms: Earliest time at which a part can have been created; 0 in a record of an older lakesink.
        recovered: True if an earlier run prepared it. Not part of the record.
    """

    commit_id: str
    directory_id: str
    follows: str
    accepted: str
    format: str
    parts: tuple[Part, ...]
    begun_ms: int
    recovered: bool = False

    @property
    def payload(self) -> dict[str, Any]:
        """JSON-able form for the prepared record."""
        return {
            "commit_id": self.commit_id,
            "directory_id": self.directory_id,
            "follows": self.follows,
            "accepted": self.accepted,
            "format": self.format,
            "begun_ms": self.begun_ms,
            "parts": [[part.name, part.rows, part.size_bytes] for part in self.parts],
        }


def parse_prepared(payload: Mapping[str, Any], stem: str) -> PreparedParts | None:
    """The batch that an earlier run prepared; None if the payload is malformed. `stem` starts the parts' names."""
    texts = {name: payload.get(name) for name in ("commit_id", "directory_id", "follows", "accepted", "format")}
    parts, begun_ms = payload.get("parts"), payload.get("begun_ms", 0)
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(parts, list):
        return None
    if type(begun_ms) is not int or not all(_ID.fullmatch(str(texts[name])) for name in ("commit_id", "directory_id")):
        return None
    try:
        found = tuple(part_from_json(part, stem) for part in parts)
    except ReceiptInvalid:
        return None
    if texts["format"] not in FORMATS or len({part.name for part in found}) != len(found) or not can_be_told(found):
        return None
    return PreparedParts(
        commit_id=str(texts["commit_id"]),
        directory_id=str(texts["directory_id"]),
        follows=str(texts["follows"]),
        accepted=str(texts["accepted"]),
        format=str(texts["format"]),
        parts=found,
        begun_ms=begun_ms,
        recovered=True,
    )


def still_usable(look: Look, prepared: PreparedParts) -> bool:
    """True if ledger and accepted refusal are those of the prepare; otherwise the batch must be written again."""
    assert isinstance(look.verdict, Commit)
    return (look.follows, look.verdict.accepted) == (prepared.follows, prepared.accepted)
