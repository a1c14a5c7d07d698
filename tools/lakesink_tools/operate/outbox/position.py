"""The outbox's position: the newest batch in its ledger topic, and nothing else. Pure.

The newest record has the position, the names of the key columns, and with which batch the outbox began. The outbox
stops if ledger topic or table no longer have what it has produced, and never guesses. The names are a part of every key
in the topic: a batch that has other names is refused, because its rows and tombstones would not replace those there.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema

from lakesink.read.position import Position, parse_offset
from lakesink.read.steps import Follows, SinkBatches, Unread, is_batch_of, owner_of_changelog
from lakesink.sinks.kafka.commit_record import LedgerState
from lakesink_catalog.read.past import Past
from lakesink_protocol.errors import CatalogError, QueryError, SettingsError
from lakesink_protocol.identity import Batch, digest
from lakesink_protocol.redact import shown

LONGEST_KEY_BYTES = 1024
"""For the names of the key columns in a record, as JSON: the whole text has at most 4 KiB."""
_KEYS, _BEGAN = "keys", "starting"
_QUERY = "outbox"
_SHOWN = 60


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
        raise _refused(
            outbox, f"follows sink {shown(position.sink, _SHOWN)!r} in branch {shown(position.branch, _SHOWN)!r}"
        )
    return progress


def check_beginning(progress: Progress, starting_batch: int | None, outbox: Outbox) -> None:
    """Refuse an outbox that has begun with another batch than the one that the user names; None names none.

    The same command can be started again after a crash.
    """
    if starting_batch in (None, progress.starting_batch):
        return
    began = "the first batch" if progress.starting_batch is None else f"batch {progress.starting_batch}"
    raise CatalogError.of(
        "OUTBOX_REFUSED.beginning",
        name=outbox.name,
        began=began,
        starting_batch=starting_batch,
        batch_id=progress.position.batch_id,
    )


def check_same_key(key: Sequence[str], known: Progress | None, batch: str) -> None:
    """Refuse a key with other names than the records in the topic have."""
    if len(json.dumps(key).encode()) > LONGEST_KEY_BYTES:
        raise SettingsError.of("OUTBOX_KEY.too_long", longest=LONGEST_KEY_BYTES)
    if known is None or tuple(key) == known.keys:
        return
    then = _listed(known.keys)
    raise SettingsError.of("OUTBOX_KEY.changed", batch=batch.capitalize(), key=_listed(key), then=then)


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


def batch_of(state: LedgerState, progress: Progress) -> Batch:
    """What the sink commits next: the outbox counts its own batches, and each has the progress behind it.

    The key is a part of it: records that were prepared with another one are not of this batch.
    """
    before, offsets = None if state.record is None else state.record.batch, progress.to_offsets()
    end = digest(offsets)
    return Batch(
        batch_id=0 if before is None else before.batch_id + 1,
        query_id=_QUERY if before is None else before.query_id,
        fingerprint=end,
        start=None if before is None else before.end,
        end=end,
        offsets=offsets,
    )


def _refused(outbox: Outbox, why: str) -> CatalogError:
    return CatalogError.of("OUTBOX_REFUSED", name=outbox.name, why=why)


def check_standing(past: Past, unread: Unread, position: Position, outbox: Outbox) -> None:
    """Refuse a table that was rolled back behind the position.

    A reader of new rows may go on behind any batch that ends at the same offsets. An outbox may not: its topic has the
    rows of the batch as it was, and the table has others.

    Raises:
        CatalogError: READ_ROLLED_BACK, or READ_BATCH_CHANGED if other batches were written in the place of those that
            were produced.
    """
    if unread.is_rolled_back:
        raise CatalogError.of(
            "READ_ROLLED_BACK.produced",
            position=_named(position, outbox),
            table=outbox.table,
            batch_id=position.batch_id,
        )
    if unread.lost_replay:
        raise CatalogError.of(
            "READ_ROLLED_BACK.produced_replay", replay=unread.lost_replay, sink=outbox.sink.sink, table=outbox.table
        )
    if not _has_produced(past, position):
        raise CatalogError.of("READ_BATCH_CHANGED.produced", position=_named(position, outbox))


def _has_produced(past: Past, position: Position) -> bool:
    """True if the branch has the position's snapshot, or the same batch written again with the same input."""
    if position.is_before_all or past.parent_id == position.snapshot_id:
        return True
    return any(one.snapshot_id == position.snapshot_id or is_batch_of(one, position) for one in past.commits)


def _named(position: Position, outbox: Outbox) -> str:
    return f"Batch {position.batch_id} of sink {outbox.sink.sink!r}"


def key_names(batch: Schema, table: Schema, asked: Sequence[str] | None) -> tuple[str, ...]:
    """The names, in the schema of a batch, of the columns that make the key; `table` is the present schema.

    `asked` has names of the user, present ones or those of the batch; None for the identifier fields of the table.
    """
    then, now = ({field.field_id: field.name for field in schema.fields} for schema in (batch, table))
    if asked is None:
        return tuple(sorted(then.get(one, now.get(one, "")) for one in table.identifier_field_ids))
    ids = {name: number for number, name in now.items()}
    return tuple(dict.fromkeys(then.get(ids.get(name, -1), name) for name in asked))


def check_unique(key: Sequence[str], batch: Schema, key_ids: Collection[int], outbox: Outbox, batch_id: int) -> None:
    """Refuse a key of a batch that replaced or deleted rows, if several rows of the table can have it.

    `key` has names of the schema `batch`. `key_ids` are the columns by which the stream replaces and deletes rows;
    empty for its identifier fields.
    """
    names = {field.field_id: field.name for field in batch.fields}
    needed = sorted(names.get(one, f"field {one}") for one in key_ids or batch.identifier_field_ids)
    if key and needed and set(needed) <= set(key):
        return
    what = f"Batch {batch_id} of {shown(outbox.table, _SHOWN)} replaced or deleted rows"
    if not needed:
        raise SettingsError.of("OUTBOX_KEY.unknown", what=what)
    if not key:
        raise SettingsError.of("OUTBOX_KEY.unnamed", what=what, keys=" --key ".join(needed))
    raise SettingsError.of("OUTBOX_KEY.not_unique", what=what, needed=_listed(needed), key=_listed(key))


def _listed(names: Sequence[str]) -> str:
    return f"({shown(', '.join(names), _SHOWN)})" if names else "(none)"
