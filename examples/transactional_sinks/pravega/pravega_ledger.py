"""Which transaction is a batch: one entry for each sink, in a Key-Value Table beside the stream.

An entry is changed by compare-and-swap, so two drivers that prepared the same batch learn which of their transactions
was elected. A reader of the stream sees nothing of this.
"""

import hashlib
import json
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pravega_controller import Controller, PravegaFailed, State
from pravega_segments import NOT_THERE, Connection, connected

from lakesink import BatchRefused, CommitUnresolved, Reason
from lakesink_catalog.identity import Batch

KEY_BYTES = 16
FORMAT = 1


class Fate(Enum):
    """What the ledger knows of an elected transaction. If only its election is known, its state tells the rest."""

    ELECTED = "elected"
    LANDED = "landed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Elected:
    """The transaction that is a batch: no other one is ever committed for it, unless Pravega aborts this one."""

    batch_id: int
    query_id: str
    fingerprint: str
    transaction: int
    fate: Fate = Fate.ELECTED

    @classmethod
    def of(cls, batch: Batch, transaction: int) -> "Elected":
        """A transaction of this batch."""
        return cls(batch.batch_id, batch.query_id, batch.fingerprint, transaction)


class Standing(Enum):
    """Where a batch stands beside the newest one of the ledger."""

    NEXT = "next"
    THIS = "this"


def standing(batch: Batch, newest: Elected | None) -> Standing:
    """Compare a batch with the newest one. Pure.

    Raises:
        BatchRefused: The batch does not follow the history of the stream.
    """
    last = -1 if newest is None else newest.batch_id
    if newest is not None and newest.query_id != batch.query_id:
        raise refused(Reason.NEW_CHECKPOINT, batch, "comes from another checkpoint")
    if batch.batch_id > last + 1:
        raise refused(Reason.GAP, batch, f"does not follow batch {last}")
    if newest is None or batch.batch_id == last + 1:
        return Standing.NEXT
    if batch.batch_id < last:
        raise refused(Reason.REWOUND, batch, f"is older than batch {last}")
    if batch.fingerprint != newest.fingerprint:
        raise refused(Reason.BATCH_CHANGED, batch, "came back with other data")
    return Standing.THIS


def fate_of(elected: Elected, state: Callable[[int], State]) -> Fate:
    """What became of an elected transaction: by the ledger, else by its state.

    Raises:
        CommitUnresolved: Pravega has forgotten the transaction.
    """
    if elected.fate is not Fate.ELECTED:
        return elected.fate
    now = state(elected.transaction)
    if now is State.UNKNOWN:
        raise forgotten(elected)
    return {State.COMMITTED: Fate.LANDED, State.ABORTED: Fate.ABORTED}.get(now, Fate.ELECTED)


@dataclass(frozen=True, slots=True)
class Held:
    """The ledger as it was read.

    Attributes:
        born: Identity of this ledger, which a recreated stream does not have; empty if there is no ledger yet.
        newest: The newest batch.
        version: Version of the entry; a change asserts it.
    """

    born: str = ""
    newest: Elected | None = None
    version: int = NOT_THERE


@dataclass(frozen=True, slots=True)
class Ledger:
    """The entry of one sink."""

    controller: Controller
    sink_id: str

    def read(self) -> Held:
        """The entry as it is now."""
        with self._connected() as table:
            entry = table.read(self._key)
        if entry is None or entry.version == NOT_THERE:
            return Held()
        born, newest = _parsed(entry.value, self.sink_id)
        return Held(born, newest, entry.version)

    def opened(self) -> Held:
        """The entry, which is made if there is none."""
        held = self.read()
        if not held.born:
            self.controller.create_table(self._table, KEY_BYTES)
            self._put(NOT_THERE, uuid.uuid4().hex, None)  # if another driver was first, its entry counts
            held = self.read()
        return held

    def swap(self, held: Held, newest: Elected) -> bool:
        """Replace the entry that was read; False if another driver has changed it since."""
        return self._put(held.version, held.born, newest)

    def _put(self, version: int, born: str, newest: Elected | None) -> bool:
        with self._connected() as table:
            return table.swap(self._key, version, _encoded(self.sink_id, born, newest))

    def _connected(self) -> AbstractContextManager[Connection]:
        return connected(self.controller.table_segment(self._table), self.controller.patience_seconds)

    @property
    def _table(self) -> str:
        return f"lakesink-{self.controller.stream}"

    @property
    def _key(self) -> bytes:
        return hashlib.blake2b(self.sink_id.encode(), digest_size=KEY_BYTES).digest()


def refused(reason: Reason, batch: Batch, why: str) -> BatchRefused:
    """The error for a batch that does not follow the history."""
    return BatchRefused(
        reason,
        f"Batch {batch.batch_id} {why}.",
        data=f"This run committed nothing of batch {batch.batch_id} to the stream.",
        action="Restore the checkpoint that the stream was written from.",
    )


def forgotten(elected: Elected) -> CommitUnresolved:
    """The error for an elected transaction whose end Pravega no longer knows."""
    return CommitUnresolved(
        "PRAVEGA_FORGOTTEN",
        f"Pravega no longer knows whether it committed transaction {elected.transaction:032x} of batch"
        f" {elected.batch_id}.",
        data=f"The stream has all rows of batch {elected.batch_id} or none; nothing was deleted.",
        action="Look for the rows in the stream. Call PravegaSink.settle(landed=True) if they are there,"
        " settle(landed=False) if not, and start the query again.",
    )


def _encoded(sink_id: str, born: str, newest: Elected | None) -> bytes:
    entry: dict[str, Any] = {"format": FORMAT, "sink": sink_id, "born": born}
    if newest is not None:
        entry |= {"batch": newest.batch_id, "query": newest.query_id, "fingerprint": newest.fingerprint}
        entry |= {"transaction": f"{newest.transaction:032x}", "fate": newest.fate.value}
    return json.dumps(entry).encode()


def _parsed(value: bytes, sink_id: str) -> tuple[str, Elected | None]:
    try:
        entry = json.loads(value)
        if (entry["format"], entry["sink"]) != (FORMAT, sink_id):
            raise PravegaFailed(f"the ledger's entry is not of format {FORMAT} and sink {sink_id}")
        if "batch" not in entry:
            return entry["born"], None
        transaction, fate = int(entry["transaction"], 16), Fate(entry["fate"])
        return entry["born"], Elected(entry["batch"], entry["query"], entry["fingerprint"], transaction, fate)
    except (ValueError, TypeError, KeyError) as error:
        raise PravegaFailed(f"the ledger's entry of sink {sink_id} cannot be read: {error!r}") from None
