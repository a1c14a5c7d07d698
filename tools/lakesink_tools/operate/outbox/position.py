"""The outbox's position: the newest batch in its ledger topic, and nothing else. Pure.

The newest record has the position, the names of the key columns, and with which batch the outbox began.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakesink._version import __version__
from lakesink.read.position import Position, parse_offset
from lakesink.read.steps import Follows, SinkBatches, owner_of_changelog
from lakesink.sinks.kafka.commit_record import CommitRecord, LedgerState
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import CatalogError, QueryError
from lakesink_protocol.identity import Batch, digest
from lakesink_protocol.redact import shown

LONGEST_KEY_BYTES = 1024
"""For the names of the key columns in a record, as JSON: the whole text has at most 4 KiB."""
_KEYS, _BEGAN = "keys", "starting"


@dataclass(frozen=True, slots=True)
class Outbox:
    """Who produces what: the name of the outbox, and the batches of the table that it follows."""

    name: str
    table: str
    sink: SinkBatches


@dataclass(frozen=True, slots=True)
class Progress:
    """What the ledger topic says about an outbox.

    Attributes:
        position: Behind the newest batch in the topic.
        keys: Names of the key columns of all records in the topic.
        starting_batch: The batch with which the outbox began; None if it began with the first one.
    """

    position: Position
    keys: tuple[str, ...]
    starting_batch: int | None = None

    def to_offsets(self) -> str:
        """The text that the record has."""
        began = {} if self.starting_batch is None else {_BEGAN: self.starting_batch}
        document = self.position.to_offset() | {_KEYS: self.keys} | began
        return json.dumps(document, sort_keys=True, separators=(",", ":"))


def progress_in(state: LedgerState, outbox: Outbox) -> Progress | None:
    """The progress that the ledger topic has; None before the first batch.

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
        progress = _parsed(json.loads(state.record.batch.offsets))
    except (ValueError, TypeError, AttributeError, QueryError):
        raise _refused(outbox, "is of a stream or of another lakesink, and not of an outbox") from None
    position = progress.position
    of_changelog = outbox.sink.follows is Follows.CHANGELOG
    sink = owner_of_changelog(position.sink) if of_changelog else position.sink
    if (sink, position.branch) != (outbox.sink.sink, outbox.sink.branch):
        raise _refused(outbox, f"follows sink {shown(position.sink, 60)!r} in branch {shown(position.branch, 60)!r}")
    return progress


def check_beginning(progress: Progress, starting_batch: int | None, outbox: Outbox) -> None:
    """Refuse an outbox that has begun with another batch than the one that the user names; None names none.

    The same command can be started again after a crash.
    """
    if starting_batch in (None, progress.starting_batch):
        return
    began = "the first batch" if progress.starting_batch is None else f"batch {progress.starting_batch}"
    raise CatalogError(
        "OUTBOX_REFUSED",
        f"Outbox {outbox.name!r} began with {began}, and not with batch {starting_batch}; it is behind batch"
        f" {progress.position.batch_id}.",
        data=DataState.UNCHANGED,
        action=(
            "To go on behind that batch, leave --starting-batch out.",
            f"To begin with batch {starting_batch}, give a new --id; batches in the topic then may come again.",
        ),
    )


def check_same_ledger(before: LedgerState | None, now: LedgerState, outbox: Outbox) -> None:
    """Refuse a ledger topic that was deleted, or lost records, since this process read it last.

    Raises:
        CatalogError: OUTBOX_REFUSED. A process that starts later cannot know it.
    """
    if before is None or now.damage:
        return
    if before.target_id != now.target_id:
        raise _refused(outbox, "is another one than before, or of another topic: one of them was created again")
    if before.record is not None and (now.record is None or now.record.number < before.record.number):
        raise _refused(outbox, f"no longer has the record of batch {before.record.batch.batch_id}")


def _parsed(document: Mapping[str, Any]) -> Progress:
    """Raises ValueError or QueryError for a document that is not one of `Progress.to_offsets`."""
    keys, began = document.get(_KEYS), document.get(_BEGAN)
    if not isinstance(keys, list) or not all(isinstance(name, str) for name in keys):
        raise ValueError("keys")
    if began is not None and type(began) is not int:
        raise ValueError("starting batch")
    offset = {name: value for name, value in document.items() if name not in (_KEYS, _BEGAN)}
    return Progress(parse_offset(offset), tuple(keys), began)


def record_of(
    state: LedgerState, outbox: Outbox, progress: Progress, *, rows: int, commit_id: str, now: datetime
) -> CommitRecord:
    """The ledger's record of a batch, or of a replay after it; the position of `progress` is behind it."""
    position = progress.position
    batch = Batch(
        batch_id=max(position.batch_id, 0),
        query_id=position.query_id,
        fingerprint=position.fingerprint,
        start=None,
        end=digest(position.to_offset()),
        offsets=progress.to_offsets(),
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
