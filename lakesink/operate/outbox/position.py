"""The outbox's position: the newest batch in its ledger topic, and nothing else. Pure."""

import json
from dataclasses import dataclass
from datetime import datetime

from lakesink import __version__
from lakesink.read.position import Position, parse_offset
from lakesink.read.steps import SinkBatches, Step
from lakesink.sinks.kafka.commit_record import CommitRecord, LedgerState
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import Batch, digest
from lakesink_protocol.redact import shown


@dataclass(frozen=True, slots=True)
class Outbox:
    """Who produces what: the name of the outbox, and the batches of the table that it follows."""

    name: str
    table: str
    sink: SinkBatches


def position_in(state: LedgerState, outbox: Outbox) -> Position | None:
    """The position that the ledger topic has; None before the first batch.

    Raises:
        CatalogError: The ledger topic is not that of this outbox, or the topic was created again.
    """
    if state.damage:
        raise _refused(outbox, f"cannot be trusted: {state.damage}")
    if state.record is None:
        return None
    if state.record.target_id != state.target_id:
        raise _refused(outbox, "is of another topic: one of them was created again, or --topic has changed")
    try:
        position = parse_offset(json.loads(state.record.batch.offsets))
    except ValueError:
        raise _refused(outbox, "is of a stream, and not of an outbox") from None
    if (position.sink, position.branch) != (outbox.sink.sink, outbox.sink.branch):
        raise _refused(outbox, f"follows sink {shown(position.sink, 60)!r} in branch {shown(position.branch, 60)!r}")
    return position


def record_of(
    state: LedgerState, outbox: Outbox, step: Step, position: Position, *, rows: int, commit_id: str, now: datetime
) -> CommitRecord:
    """The ledger's record of a batch; `position` is behind it."""
    assert step.mark is not None
    offset = position.to_offset()
    batch = Batch(
        batch_id=step.mark.batch_id,
        query_id=step.mark.query_id,
        fingerprint=step.mark.fingerprint,
        start=None,
        end=digest(offset),
        offsets=json.dumps(offset, sort_keys=True, separators=(",", ":")),
    )
    return CommitRecord(
        number=0 if state.record is None else state.record.number + 1,
        sink_id=outbox.name,
        target_id=state.target_id,
        batch=batch,
        ledger=batch,
        outcome="committed",
        accepted="",
        commit_id=commit_id,
        rows=rows,
        committed_at=now.isoformat(),
        lakesink=__version__,
    )


def _refused(outbox: Outbox, why: str) -> CatalogError:
    return CatalogError(
        "OUTBOX_REFUSED",
        f"The ledger topic of outbox {outbox.name!r} {why}.",
        data=DataState.UNCHANGED,
        action=(
            "Correct the table, --sink, --topic, --branch or --bootstrap-servers.",
            "To produce all batches again, into this topic or another one, give a new --id.",
        ),
    )
