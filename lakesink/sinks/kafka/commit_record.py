"""One commit of the Kafka sink, as its ledger topic has it. Pure.

The topic is compacted: only the newest record is sure to be there, so the ancestry of a sink is one record long.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lakesink.sinks.staged.ledger import LedgerDecision, StagedCommit, decide_by
from lakesink_protocol.identity import BATCH_FACTS, Batch
from lakesink_protocol.ledger import LARGEST_NUMBER, MAX_MARK_OFFSETS_BYTES
from lakesink_protocol.refusals.accept import Accept

KAFKA_LEDGER_VERSION = 1
MAX_RECORD_BYTES = 64 * 1024
_TEXTS = ("sink_id", "target_id", "outcome", "accepted", "commit_id", "committed_at", "lakesink")
_COUNTS = ("number", "rows")


class RecordDamaged(ValueError):
    """A record is not one of this sink, or of a newer version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord(StagedCommit):
    """One commit. The record before may be gone: the topic is compacted.

    Attributes:
        target_id: Digest of the topic and the ledger topic, with the ids that Kafka gave them when they were created.
        ledger: The batch that the ledger shows after this commit. It differs from `batch` only if an operator accepted
            the replay of an old one.
    """

    target_id: str
    ledger: Batch
    rows: int

    @property
    def shown_batch_id(self) -> int:
        """See `StagedCommit.shown_batch_id`."""
        return self.ledger.batch_id

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

    def decide_on(
        self, sink_id: str, batch: Batch, start_id: str, accept: Accept | None
    ) -> LedgerDecision[CommitRecord]:
        """The decision about a batch; `start_id` is the target's id at the start of this run."""
        record = self.record
        commits = {} if record is None else {record.number: record}
        entry = None if record is None else record.entry_of(record.ledger, record.target_id)
        ids = {"sink_id": sink_id, "target_id": self.target_id, "start_id": start_id}
        return decide_by(commits, record, entry, self.damage, **ids, batch=batch, accept=accept)


def _record(document: Mapping[str, Any]) -> CommitRecord:
    version = document["version"]
    if type(version) is not int or version != KAFKA_LEDGER_VERSION:
        raise RecordDamaged(f"its record has version {str(version)[:20]}, this lakesink reads {KAFKA_LEDGER_VERSION}")
    own: dict[str, Any] = {name: document[name] for name in (*_TEXTS, *_COUNTS)}
    batches = [{name: document[part][name] for name in BATCH_FACTS} for part in ("batch", "ledger")]
    for name, value in (fact for part in (own, *batches) for fact in part.items()):
        is_count = type(value) is int and 0 <= value <= LARGEST_NUMBER
        is_text = isinstance(value, str) or (value is None and name == "start")
        if not (is_count if name in (*_COUNTS, "batch_id") else is_text):
            raise RecordDamaged("a field of its newest record has the wrong type")
    batch, ledger = (Batch(**facts) for facts in batches)
    return CommitRecord(**own, batch=batch, ledger=ledger)


def _facts(batch: Batch) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(batch).items() if name in BATCH_FACTS}
    if len(batch.offsets.encode()) > MAX_MARK_OFFSETS_BYTES:
        facts["offsets"] = ""
    return facts
