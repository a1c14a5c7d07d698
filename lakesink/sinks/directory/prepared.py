"""The prepared batch of the file sink: its closed parts, and the marker that it follows. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakesink.sinks.directory.ledger import LedgerDecision
from lakesink.sinks.directory.part_receipt import Part, check_batch, parts_from_json
from lakesink_protocol.receipt import ReceiptInvalid, plain_text
from lakesink_protocol.verdict import Commit

_ID = re.compile(r"[0-9a-f]{32}")
_TEXTS = ("commit_id", "directory_id", "follows", "accepted")


@dataclass(frozen=True, slots=True)
class PreparedParts:
    """A batch that only needs its marker; `Marker` explains the fields that both classes have.

    Attributes:
        follows: Digest of the newest marker when this was prepared; empty if there was none.
        begun_ms: Time before the first part was created; 0 in a record of an older lakesink.
        recovered: True if an earlier run prepared it. Not part of the record.
    """

    commit_id: str
    directory_id: str
    follows: str
    accepted: str
    parts: tuple[Part, ...]
    begun_ms: int
    recovered: bool = False

    @property
    def payload(self) -> dict[str, Any]:
        """JSON-able form for the prepared record."""
        return {name: getattr(self, name) for name in (*_TEXTS, "begun_ms")} | {
            "parts": [[part.name, part.rows, part.size_bytes] for part in self.parts]
        }


def parse_prepared(payload: Mapping[str, Any], stem: str) -> PreparedParts | None:
    """The batch that an earlier run prepared; None if the payload is malformed. `stem` starts the parts' names."""
    begun_ms = payload.get("begun_ms", 0)
    try:
        texts = {name: plain_text(payload.get(name)) for name in _TEXTS}
        parts = parts_from_json(payload.get("parts"), stem)
        check_batch(parts)
    except ReceiptInvalid:
        return None
    ids = texts["commit_id"], texts["directory_id"]
    if type(begun_ms) is not int or not all(map(_ID.fullmatch, ids)):
        return None
    return PreparedParts(**texts, parts=parts, begun_ms=begun_ms, recovered=True)


def still_usable(decision: LedgerDecision, prepared: PreparedParts) -> bool:
    """True if ledger and accepted refusal are unchanged since the pre-commit; otherwise the batch is written again."""
    assert isinstance(decision.verdict, Commit)
    return (decision.follows, decision.verdict.accepted) == (prepared.follows, prepared.accepted)
