"""A proxy on loopback before a real REST catalog: all goes through, but for the commit that it is told to spoil.

What may become of one commit request is an `HttpFault`. A request that reached the catalog has its effect there,
whatever the client is told, as over a real network.
"""

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, assert_never
from urllib.parse import urlsplit

from lakesink_catalog.connect.first_snapshot import PROBE

DRIP_SECONDS = 0.1
LONGEST_SILENCE_SECONDS = 60.0
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "accept-encoding"})


class Kind(Enum):
    """What goes wrong with a request, or with its answer."""

    STATUS = "another status"
    DROP = "connection dropped"
    SILENCE = "never answered"
    CUT = "body cut"
    GARBLE = "body garbled"
    DRIP = "body drips"
    LATE = "delivered late, never answered"
    SLOW = "delivered late, answered"
    TWICE = "delivered twice"


@dataclass(frozen=True, slots=True)
class HttpFault:
    """What becomes of one request.

    Attributes:
        kind: What goes wrong.
        applied: True if the catalog gets the request; what comes late, slowly or twice is always applied.
        status: Of the answer, for `Kind.STATUS`.
        seconds: How late.
    """

    kind: Kind
    applied: bool = True
    status: int = 0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """In words."""
        what = f"status {self.status}" if self.kind is Kind.STATUS else self.kind.value
        return what if self.kind in ALWAYS_APPLIED else f"{what}, {'applied' if self.applied else 'not applied'}"


ALWAYS_APPLIED = frozenset({Kind.LATE, Kind.SLOW, Kind.TWICE})


@dataclass(frozen=True, slots=True)
class Answered:
    """What the catalog said."""

    status: int
    headers: Mapping[str, str]
    body: bytes


GARBAGE = Answered(200, {"Content-Type": "text/html"}, b"<html><body>It works!</body></html>")
CUT_SHORT = Answered(
    200, {"Content-Type": "application/json"}, b'{"metadata-location": "file:///nowhere", "metadata": {'
)


@dataclass(slots=True)
class FaultProxy:
    """Passes requests on to a catalog. Its fields may be changed between requests.

    Attributes:
        target: URI of the catalog.
        faults: By number of the commit request, from 1.
        meanwhile: Called once for every fault: after the request had its effect and before its answer; before it has
            its effect, if that comes late.
        commits: Commit requests so far.
        answers: Statuses of the catalog to commit requests, as they came.
        met: Set when a fault is under way and `meanwhile` has been called.
        over: Set when nothing that was held back is still to be delivered.
    """

    target: str
    faults: dict[int, HttpFault] = field(default_factory=dict)
    meanwhile: Callable[[], None] = lambda: None
    commits: int = 0
    answers: list[int] = field(default_factory=list)
    met: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    uri: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _released: threading.Event = field(default_factory=threading.Event)

    def arm(self, number: int, fault: HttpFault, meanwhile: Callable[[], None]) -> None:
        """Spoil one commit request to come."""
        self.faults[number] = fault
        self.meanwhile = meanwhile
        self.over.clear()

    def fault_for(self, method: str, path: str) -> HttpFault | None:
        """What is to become of a request; counts commits."""
        if not is_commit(method, path):
            return None
        with self._lock:
            self.commits += 1
            return self.faults.get(self.commits)

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answered:
        """Ask the catalog."""
        target = urlsplit(self.target)
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=LONGEST_SILENCE_SECONDS)
        try:
            connection.request(method, path, body or None, dict(headers))
            answer = connection.getresponse()
            found = Answered(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()
        if is_commit(method, path):
            self.answers.append(found.status)
        return found

    def hold(self, seconds: float) -> None:
        """Wait, but not beyond the proxy's own end."""
        self._released.wait(seconds)

    def release(self) -> None:
        """Let everybody go who waits for an answer."""
        self._released.set()


def is_commit(method: str, path: str) -> bool:
    """True for a request that changes one table, but for the scratch table by which lakesink asks a service first."""
    parts = urlsplit(path).path.strip("/").split("/")
    of_table = method == "POST" and len(parts) >= 5 and parts[-2] == "tables" and parts[-4] == "namespaces"
    return of_table and not parts[-1].startswith(PROBE)


@contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """A proxy that runs, and ends with the block.

    Args:
        target: URI of the catalog.
    """
    proxy = FaultProxy(target)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    listening = _Listening(("127.0.0.1", 0), handler)
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True, name="fault-proxy").start()
    proxy.uri = f"http://127.0.0.1:{listening.server_port}"
    try:
        yield proxy
    finally:
        proxy.release()
        listening.shutdown()
        listening.server_close()


class _Listening(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that dies in the middle of its request is no error here."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.fault_for(self.command, self.path)
        with suppress(BrokenPipeError, ConnectionResetError):
            if fault is None:
                self._answer(self._ask(body))
            else:
                self._spoil(fault, body)

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = _handle  # noqa: N815 # the names are http.server's

    def _ask(self, body: bytes) -> Answered:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        return self.proxy.forward(self.command, self.path, headers, body)

    def _spoil(self, fault: HttpFault, body: bytes) -> None:
        late = fault.kind in (Kind.LATE, Kind.SLOW)
        try:
            found = self._ask(body) if fault.applied and not late else None
            self.proxy.meanwhile()
            self.proxy.met.set()
            if late:
                time.sleep(fault.seconds)
                found = self._ask(body)
            if fault.kind is Kind.TWICE:
                found = self._ask(body)
        finally:
            self.proxy.over.set()
        self._answer_spoilt(fault, found)

    def _answer_spoilt(self, fault: HttpFault, found: Answered | None) -> None:
        match fault.kind:
            case Kind.STATUS:
                self._answer(_injected(fault.status))
            case Kind.DROP:
                self.close_connection = True
            case Kind.SILENCE | Kind.LATE:
                self.proxy.hold(LONGEST_SILENCE_SECONDS)
                self.close_connection = True
            case Kind.CUT:
                whole = found or CUT_SHORT
                self._answer(whole, cut=len(whole.body) // 2)
            case Kind.GARBLE:
                self._answer(GARBAGE)
            case Kind.DRIP:
                self._drip(found or GARBAGE)
            case Kind.SLOW | Kind.TWICE:
                assert found is not None
                self._answer(found)
            case _:
                assert_never(fault.kind)

    def _answer(self, found: Answered, cut: int | None = None) -> None:
        self.send_response(found.status)
        for name, value in found.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body[:cut])
        self.close_connection = cut is not None

    def _drip(self, whole: Answered) -> None:
        self.send_response(whole.status)
        self.send_header("Content-Length", str(len(whole.body)))
        self.end_headers()
        for at in range(len(whole.body)):
            self.wfile.write(whole.body[at : at + 1])
            self.proxy.hold(DRIP_SECONDS)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _injected(status: int) -> Answered:
    error = {"message": "something in between", "type": "Injected", "code": status}
    return Answered(status, {"Content-Type": "application/json"}, json.dumps({"error": error}).encode())
