"""A target's ledger as the verdict sees it: its commits, the decision about a batch, and a prepared batch. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Self, TypeVar

from lakesink.sinks.staged.part_receipt import Part, check_batch, parts_from_json
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.ledger import LedgerEntry, Mark, TableView, next_entry, stated_of
from lakesink_protocol.receipt_json import ReceiptInvalid, plain_text
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION, Commit, Verdict, decide

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """One commit. It corresponds to a table's snapshot with its batch mark, and the verdict uses it in the same way.

    Attributes:
        number: Its position among the sink's commits, from 0.
        outcome: ``committed``, ``recovered`` or ``accepted``.
        accepted: The overruled refusal as the user spelled it; empty if none.
        commit_id: Random id of the prepare. It distinguishes this commit from another driver's of the same batch.
        committed_at: UTC time of the driver's clock, for information only.
        lakesink: The version that wrote it.
    """

    number: int
    sink_id: str
    batch: Batch
    outcome: str
    accepted: str
    commit_id: str
    committed_at: str
    lakesink: str

    @property
    def identity(self) -> str:
        """What a batch names that is prepared after this commit."""
        return self.commit_id

    @property
    def snapshot_id(self) -> int:
        """The number, under the name that the verdict uses."""
        return self.number

    @property
    def parent_snapshot_id(self) -> int | None:
        """The number of the commit before; None if the ledger may not have it any more."""
        return None

    @property
    def sequence_number(self) -> int:
        """Position from 1, as in a table."""
        return self.number + 1

    @property
    def shown_batch_id(self) -> int:
        """The batch that the ledger shows after this commit: an older one if an operator accepted an old replay."""
        return self.batch.batch_id

    @property
    def summary(self) -> dict[str, str]:
        """The batch mark, as in a snapshot's summary."""
        mark = Mark(
            SinkKey(self.sink_id),
            outcome=self.outcome,
            accepted=self.accepted,
            ledger_batch_id=self.shown_batch_id,
            **stated_of(self.batch),
        )
        return mark.to_summary()

    def entry_of(self, ledger: Batch, target_id: str) -> LedgerEntry:
        """The ledger entry after this commit; `ledger` is the batch that it shows."""
        return next_entry(ledger, snapshot_id=self.number, sequence_number=self.sequence_number, table_uuid=target_id)


C = TypeVar("C", bound=StagedCommit)


@dataclass(frozen=True, slots=True)
class LedgerDecision(Generic[C]):
    """The decision about a batch; `head` is the newest commit, and `commits` has those that the ledger still has."""

    situation: Situation
    verdict: Verdict
    head: C | None
    commits: Mapping[int, C]

    @property
    def follows(self) -> str:
        """The commit that a batch prepared now follows; empty if it is the first."""
        return "" if self.head is None else self.head.identity


def decide_by(  # noqa: PLR0913 - a ledger as it was read
    commits: Mapping[int, C],
    head: C | None,
    entry: LedgerEntry | None,
    damage: str,
    *,
    sink_id: str,
    target_id: str,
    start_id: str,
    batch: Batch,
    accept: Accept | None,
) -> LedgerDecision[C]:
    """Decide on a batch by a ledger; another `target_id` than at the start of this run means another target."""
    view = TableView(
        table_uuid=target_id,
        format_version=SUPPORTED_FORMAT_VERSION,
        branch_exists=True,
        head=None if head is None else head.number,
        entry=entry,
        entry_damage=damage,
        snapshots=commits,
        tag_snapshot_id=None,
        last_sequence_number=0 if head is None else head.sequence_number,
        branch_contains=lambda _: False,
    )
    situation = Situation(view, SinkKey(sink_id), batch, start_id)
    return LedgerDecision(situation, decide(situation, accept), head, commits)


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
