"""The prepared batch of the Kafka sink: its staged parts, and the commit that it follows. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakesink.sinks.directory.part_receipt import Part, check_batch, parts_from_json
from lakesink.sinks.kafka.commit_record import LedgerDecision
from lakesink_protocol.receipt import ReceiptInvalid, plain_text
from lakesink_protocol.verdict import Commit

_ID = re.compile(r"[0-9a-f]{32}")
_TEXTS = ("commit_id", "topic", "follows", "accepted")


@dataclass(frozen=True, slots=True)
class PreparedRecords:
    """A batch that only needs its transaction.

    Attributes:
        commit_id: Random id of this prepare.
        topic: The topic of all rows; empty if each row names its own.
        follows: Id of the newest commit when this was prepared; empty if there was none.
        recovered: True if an earlier run prepared it. Not part of the record.
    """

    commit_id: str
    topic: str
    follows: str
    accepted: str
    parts: tuple[Part, ...]
    recovered: bool = False

    @property
    def rows(self) -> int:
        """Rows in all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def payload(self) -> dict[str, Any]:
        """JSON-able form for the prepared record."""
        parts = [[part.name, part.rows, part.size_bytes] for part in self.parts]
        return {name: getattr(self, name) for name in _TEXTS} | {"parts": parts}


def parse_prepared(payload: Mapping[str, Any], stem: str) -> PreparedRecords | None:
    """The batch that an earlier run prepared; None if the payload is malformed. `stem` starts the parts' names."""
    try:
        texts = {name: plain_text(payload.get(name)) for name in _TEXTS}
        parts = parts_from_json(payload.get("parts"), stem)
        check_batch(parts)
    except ReceiptInvalid:
        return None
    return PreparedRecords(**texts, parts=parts, recovered=True) if _ID.fullmatch(texts["commit_id"]) else None


def still_usable(decision: LedgerDecision, prepared: PreparedRecords) -> bool:
    """True if ledger and accepted refusal are unchanged since the pre-commit; otherwise the batch is written again."""
    assert isinstance(decision.verdict, Commit)
    return (decision.follows, decision.verdict.accepted) == (prepared.follows, prepared.accepted)
