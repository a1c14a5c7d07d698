"""Servers for catalog tests: a loopback HTTP server with scripted answers or none, and a real PostgreSQL."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler
from typing import Any

import pytest

from servers.missing import Missing
from servers.postgres import Postgres, postgres_server

Answer = tuple[int, Any] | None
"""Status and body (bytes, or anything for JSON); None accepts the request and never answers."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def serving(handler: type[BaseRequestHandler]) -> Iterator[int]:
    """A loopback server with these handlers; yields its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def http_server(answer: Callable[[Request], Answer]) -> Iterator[str]:
    """A loopback server; yields its URI."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: a second packet would wait for the receiver's delayed ACK

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answer(Request(self.command, self.path.partition("?")[0], body, dict(self.headers)))
            if found is None:
                released.wait(60)
                self.close_connection = True
                return
            status, content = found
            payload = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(payload)

        do_GET = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815 - the names are http.server's

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Handler) as port:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            released.set()


@contextmanager
def dripping_server(*, every_seconds: float) -> Iterator[str]:
    """Answer every request with headers at once, then one byte at a time for a minute; yields its URI."""
    released = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
                for _ in range(int(60 / every_seconds)):
                    if released.wait(every_seconds):
                        return
                    connection.sendall(b" ")

        threading.Thread(target=drip, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            released.set()


class Scripted:
    """Answers each path with its scripted answer, and records the requests."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers: dict[str, Answer] = {"/v1/config": (200, {"defaults": {}, "overrides": {}}), **answers}
        self.requests: list[str] = []

    def answer(self, request: Request) -> Answer:
        self.requests.append(request.path)
        return self.answers.get(request.path, error_answer(404, "NoSuchTableException"))


@contextmanager
def rest_server(answers: dict[str, Answer] | None = None) -> Iterator[tuple[str, Scripted]]:
    scripted = Scripted(answers or {})
    with http_server(scripted.answer) as uri:
        yield uri, scripted


def error_answer(status: int, kind: str, message: str = "not there") -> Answer:
    return status, {"error": {"message": message, "type": kind, "code": status}}


@contextmanager
def postgres(password: str) -> Iterator[Postgres]:
    """A fresh PostgreSQL server with user `lake`. Skips if PostgreSQL is not installed."""
    with skipped_where_missing(), postgres_server(password) as server:
        yield server


@contextmanager
def skipped_where_missing() -> Iterator[None]:
    """Everyday tests skip what the machine lacks; tests with other engines fail instead."""
    try:
        yield
    except Missing as reason:
        pytest.skip(str(reason))
