"""Pravega's controller over gRPC: transactions by their id, for a process that did not begin them.

The Python client has no such calls: a transaction that it fetches by id can neither commit nor abort.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import grpc

messages, services = grpc.protos_and_services("pravega_controller.proto")

NO_TIMESTAMP = -(2**63)
_HALF = 2**64


class PravegaFailed(Exception):
    """Pravega did not answer, or answered that it cannot do what it was asked; in its own words."""


class LeaseRefused(PravegaFailed):
    """The server does not grant a lease of this length."""


class State(Enum):
    """State of a transaction, by Pravega's names. A finished one becomes `UNKNOWN` once the server forgets it."""

    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """A segment of the segment store, and the server that has it."""

    name: str
    host: str
    port: int


@dataclass(slots=True)
class Controller:
    """One stream's transactions.

    Attributes:
        address: Host and port of the controller.
        scope: Scope of the stream.
        stream: The stream.
        patience_seconds: Time limit of one call.
    """

    address: str
    scope: str
    stream: str
    patience_seconds: float = 30.0
    _service: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._service = services.ControllerServiceStub(grpc.insecure_channel(self.address))

    def begin(self, lease_ms: int) -> int:
        """Begin a transaction, and return its id.

        Raises:
            LeaseRefused: The server's limits do not allow this lease.
        """
        try:
            answer = self._ask("createTransaction", messages.CreateTxnRequest(streamInfo=self._info(), lease=lease_ms))
        except PravegaFailed as error:
            raise LeaseRefused(*error.args) if "lease" in str(error) else error from None
        return int(answer.txnId.highBits % _HALF) << 64 | int(answer.txnId.lowBits % _HALF)

    def commit(self, transaction: int) -> None:
        """Ask for the commit of a transaction. Its state tells what came of it: the answer `FAILURE` does not."""
        self._ask("commitTransaction", self._request(transaction, timestamp=NO_TIMESTAMP))

    def abort(self, transaction: int) -> None:
        """Ask for the end of a transaction. Its state tells what came of it."""
        self._ask("abortTransaction", self._request(transaction))

    def extend(self, transaction: int, lease_ms: int) -> bool:
        """Let the lease of an open transaction begin anew; False if the transaction is no longer open."""
        request = messages.PingTxnRequest(streamInfo=self._info(), txnId=_txn_id(transaction), lease=lease_ms)
        answer = self._ask("pingTransaction", request)
        return bool(answer.status == messages.PingTxnStatus.OK)

    def state(self, transaction: int) -> State:
        """The state of a transaction."""
        answer = self._ask("checkTransactionState", self._request(transaction))
        return State(messages.TxnState.State.Name(answer.state))

    def segments(self, transaction: int) -> list[SegmentPlace]:
        """The segments that hold the events of an open transaction. Its id begins with the stream's epoch."""
        request = messages.GetEpochSegmentsRequest(streamInfo=self._info(), epoch=transaction >> 96)
        return [
            self.place(found.segmentId, f"#transaction.{transaction:032x}")
            for found in self._ask("getEpochSegments", request).segmentRanges
        ]

    def table_segment(self, name: str) -> SegmentPlace:
        """The only segment of a Key-Value Table of the stream's scope. The table may not be there."""
        info = messages.StreamInfo(scope=self.scope, stream=f"{name}_kvtable")
        return self.place(messages.SegmentId(streamInfo=info, segmentId=0))

    def create_table(self, name: str, key_bytes: int) -> None:
        """Create a Key-Value Table of one segment in the stream's scope, unless it is there."""
        wanted = messages.KeyValueTableConfig(
            scope=self.scope, kvtName=name, partitionCount=1, primaryKeyLength=key_bytes
        )
        created = messages.CreateKeyValueTableStatus
        status = self._ask("createKeyValueTable", wanted).status
        if status not in (created.SUCCESS, created.TABLE_EXISTS):
            raise PravegaFailed(f"Key-Value Table {self.scope}/{name}: {created.Status.Name(status)}")

    def place(self, segment: Any, suffix: str = "") -> SegmentPlace:
        """Where a segment is. The upper half of its number is the epoch that created it."""
        info, number = segment.streamInfo, segment.segmentId
        node = self._ask("getURI", segment)
        name = f"{info.scope}/{info.stream}/{number & 0xFFFFFFFF}.#epoch.{number >> 32}{suffix}"
        return SegmentPlace(name, node.endpoint, node.port)

    def _request(self, transaction: int, **more: Any) -> Any:
        return messages.TxnRequest(streamInfo=self._info(), txnId=_txn_id(transaction), **more)

    def _info(self) -> Any:
        return messages.StreamInfo(scope=self.scope, stream=self.stream)

    def _ask(self, call: str, request: Any) -> Any:
        with _in_own_words(f"{call} of {self.scope}/{self.stream} at {self.address}"):
            return getattr(self._service, call)(request, timeout=self.patience_seconds)


def _txn_id(transaction: int) -> Any:
    """An id as the two signed halves of Pravega."""
    high, low = (half - _HALF if half >= _HALF // 2 else half for half in divmod(transaction, _HALF))
    return messages.TxnId(highBits=high, lowBits=low)


@contextmanager
def _in_own_words(what: str) -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise PravegaFailed(f"{what}: {error.code().name}, {error.details()}") from None
