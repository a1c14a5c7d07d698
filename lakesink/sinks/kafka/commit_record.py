"""One commit of the Kafka sink, as its ledger topic has it. Pure.

A record corresponds to a table's snapshot with its batch mark, and the verdict uses it in the same way. The topic is
compacted: only the newest record is sure to be there, so the ancestry of a sink is one record long.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lakesink_protocol.identity import BATCH_FACTS, Batch, SinkKey
from lakesink_protocol.ledger import (
    LARGEST_NUMBER,
    MAX_MARK_OFFSETS_BYTES,
    LedgerEntry,
    TableView,
    next_entry,
    next_mark,
)
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION, Verdict, decide

KAFKA_LEDGER_VERSION = 1
MAX_RECORD_BYTES = 64 * 1024
_TEXTS = ("sink_id", "target_id", "outcome", "accepted", "commit_id", "committed_at", "lakesink")
_COUNTS = ("number", "rows")
_OPTIONAL = {"start"}


class RecordDamaged(ValueError):
    """A record is not one of this sink, or of a newer version."""


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit.

    Attributes:
        number: Its position among the sink's commits, from 0.
        target_id: Digest of the topic and the ledger topic, with the ids that Kafka gave them when they were created.
        batch: The batch of this commit.
        ledger: The batch that the ledger shows after this commit. It differs from `batch` only if an operator accepted
            the replay of an old one.
        outcome: ``committed``, ``recovered`` or ``accepted``.
        accepted: The overruled refusal as the user spelled it; empty if none.
        commit_id: Random id of the prepare. It distinguishes this commit from another driver's of the same batch.
        committed_at: UTC time of the driver's clock, for information only.
    """

    number: int
    sink_id: str
    target_id: str
    batch: Batch
    ledger: Batch
    outcome: str
    accepted: str
    commit_id: str
    rows: int
    committed_at: str
    lakesink: str

    @property
    def snapshot_id(self) -> int:
        """The number, under the name that the verdict uses."""
        return self.number

    @property
    def parent_snapshot_id(self) -> None:
        """Compaction may have removed the record before."""
        return

    @property
    def sequence_number(self) -> int:
        """Position from 1, as in a table."""
        return self.number + 1

    @property
    def summary(self) -> dict[str, str]:
        """The batch mark, as in a snapshot's summary."""
        return next_mark(
            SinkKey(self.sink_id),
            self.batch,
            outcome=self.outcome,
            accepted=self.accepted,
            ledger_batch_id=self.ledger.batch_id,
        ).to_summary()

    @property
    def entry(self) -> LedgerEntry:
        """The record as a ledger entry."""
        return next_entry(
            self.ledger,
            snapshot_id=self.snapshot_id,
            sequence_number=self.sequence_number,
            table_uuid=self.target_id,
        )

    def to_bytes(self) -> bytes:
        """The value of the record; offsets that are too long are left out, their digest stays."""
        document = {name: getattr(self, name) for name in (*_COUNTS, *_TEXTS)}
        batches = {"batch": _facts(self.batch), "ledger": _facts(self.ledger)}
        return json.dumps({"version": KAFKA_LEDGER_VERSION} | document | batches, separators=(",", ":")).encode()


def parse_commit_record(data: bytes | None, sink_id: str) -> CommitRecord:
    """The record in a value of the ledger topic; raises RecordDamaged, also for one of a newer version."""
    if data is None:
        raise RecordDamaged("its newest record was deleted by a tombstone")
    if len(data) > MAX_RECORD_BYTES:
        raise RecordDamaged("its newest record is too large to be one of lakesink")
    try:
        record = _record(json.loads(data))
    except RecordDamaged:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordDamaged("its newest record is not one of lakesink") from error
    if record.sink_id != sink_id:
        raise RecordDamaged(f"its newest record is of sink {record.sink_id[:64]!r}")
    return record


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The ledger of one sink, read to its end; `damage` says why its newest record cannot be used."""

    record: CommitRecord | None
    target_id: str
    damage: str = ""

    def decide_on(self, key: SinkKey, batch: Batch, start_id: str, accept: Accept | None) -> "LedgerDecision":
        """The decision about a batch; `start_id` is the target's id at the start of this run."""
        situation = Situation(self._view(), key, batch, start_id)
        return LedgerDecision(situation, decide(situation, accept), self.record)

    def _view(self) -> TableView:
        record = self.record
        return TableView(
            table_uuid=self.target_id,
            format_version=SUPPORTED_FORMAT_VERSION,
            branch_exists=True,
            head=None if record is None else record.number,
            entry=None if record is None else record.entry,
            entry_damage=self.damage,
            snapshots={} if record is None else {record.number: record},
            tag_snapshot_id=None,
            last_sequence_number=0 if record is None else record.sequence_number,
            branch_contains=lambda _: False,
        )


@dataclass(frozen=True, slots=True)
class LedgerDecision:
    """The decision about a batch; `head` is the newest record, None if there is none."""

    situation: Situation
    verdict: Verdict
    head: CommitRecord | None

    @property
    def follows(self) -> str:
        """The commit that a batch prepared now follows; empty if it is the first."""
        return "" if self.head is None else self.head.commit_id

    @property
    def next_number(self) -> int:
        """The number of the next commit."""
        return 0 if self.head is None else self.head.number + 1

    def ledger_after(self, batch: Batch, *, moves: bool) -> Batch:
        """The batch that the ledger shows after a commit of `batch`."""
        return batch if moves or self.head is None else self.head.ledger


def _record(document: Mapping[str, Any]) -> CommitRecord:
    version = document["version"]
    if type(version) is not int or version != KAFKA_LEDGER_VERSION:
        raise RecordDamaged(f"its record has version {str(version)[:20]}, this lakesink reads {KAFKA_LEDGER_VERSION}")
    fields: dict[str, Any] = {name: _text(document[name]) for name in _TEXTS}
    fields |= {name: _count(document[name]) for name in _COUNTS}
    return CommitRecord(**fields, batch=_batch(document["batch"]), ledger=_batch(document["ledger"]))


def _facts(batch: Batch) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(batch).items() if name in BATCH_FACTS}
    if len(batch.offsets.encode()) > MAX_MARK_OFFSETS_BYTES:
        facts["offsets"] = ""
    return facts


def _batch(document: Mapping[str, Any]) -> Batch:
    facts = {name: document[name] for name in BATCH_FACTS}
    for name, value in facts.items():
        if name == "batch_id":
            _count(value)
        elif value is not None or name not in _OPTIONAL:
            _text(value)
    return Batch(**facts)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise RecordDamaged("a field of its newest record has the wrong type")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_NUMBER:
        raise RecordDamaged("a field of its newest record has the wrong type")
    return value
