"""A prepared batch: its closed parts, and the commit that it follows. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

from lakesink.sinks.staged.ledger import LedgerDecision
from lakesink.sinks.staged.part_receipt import Part, check_batch, parts_from_json
from lakesink_protocol.receipt_json import ReceiptInvalid, plain_text
from lakesink_protocol.verdict import Commit

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedParts:
    """A batch that only needs to be published. Subclasses add what their target needs.

    Attributes:
        commit_id: Random id of this prepare.
        follows: The newest commit when this was prepared; empty if there was none.
        accepted: The overruled refusal as the user spelled it; empty if none.
        recovered: True if an earlier run prepared it. Not part of the record.
    """

    commit_id: str
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
        return {name: getattr(self, name) for name in self._texts()} | {"parts": parts}

    @classmethod
    def parse(cls, payload: Mapping[str, Any], stem: str) -> Self | None:
        """The batch that an earlier run prepared; None if the payload is malformed. `stem` starts the parts' names."""
        try:
            facts: dict[str, Any] = {name: plain_text(payload.get(name)) for name in cls._texts()}
            parts = parts_from_json(payload.get("parts"), stem)
            check_batch(parts)
        except ReceiptInvalid:
            return None
        are_ids = all(_ID.fullmatch(text) for name, text in facts.items() if name.endswith("_id"))
        return cls(**facts, parts=parts, recovered=True) if are_ids else None

    @classmethod
    def _texts(cls) -> list[str]:
        """Names of the fields that are texts; the record has these and the parts."""
        return [field.name for field in fields(cls) if field.type is str]


P = TypeVar("P", bound=PreparedParts)


def still_usable(decision: LedgerDecision[Any], prepared: PreparedParts) -> bool:
    """True if ledger and accepted refusal are unchanged since the pre-commit; otherwise the batch is written again."""
    assert isinstance(decision.verdict, Commit)
    return (decision.follows, decision.verdict.accepted) == (prepared.follows, prepared.accepted)
