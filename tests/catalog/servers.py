"""Servers for catalog tests: a loopback HTTP server that answers or hangs as told, and a real PostgreSQL."""

import importlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Answer = tuple[int, Any] | None
"""Status and body (bytes, or anything that JSON has); None accepts the request and never answers."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes


@contextmanager
def http_server(answer: Callable[[Request], Answer]) -> Iterator[str]:
    """A loopback server; yields its URI."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: in two, the second waits for the receiver's delayed answer

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answer(Request(self.command, self.path.partition("?")[0], body))
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

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        released.set()
        listening.shutdown()
        listening.server_close()


@contextmanager
def dripping_server(*, every_seconds: float) -> Iterator[str]:
    """Answers every request with headers at once and then a byte at a time, for a minute; yields its URI."""
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
    """Answers each path as told, and counts requests."""

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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def postgres(password: str) -> Iterator[str]:
    """A fresh PostgreSQL with user `lake`; yields host, port and database as in a URI."""
    pytest.importorskip("psycopg2", reason="PostgreSQL's driver is not installed")
    initdb, server = _postgres_binary("initdb"), _postgres_binary("postgres")
    folder, port = Path(tempfile.mkdtemp(prefix="lakesink-pg-")), free_port()
    (folder / "password").write_text(password)
    account = _account(folder)
    data = folder / "data"
    make = [initdb, "-D", str(data), "-U", "lake", "-A", "scram-sha-256", "--pwfile", str(folder / "password")]
    subprocess.run(make, check=True, capture_output=True, cwd=folder, **account)
    run = [server, "-D", str(data), "-p", str(port), "-k", str(folder), "-h", "127.0.0.1", "-F"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(run, stdout=log, stderr=log, cwd=folder, **account)
    try:
        _wait_for(port, password)
        yield f"127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGQUIT)  # at once: idle connections of open catalogs do not count
        process.wait(30)
        shutil.rmtree(folder)


def _postgres_binary(name: str) -> str:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(installed[-1]) if installed else None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _account(folder: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: lend it to nobody."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in (folder, folder / "password"):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _wait_for(port: int, password: str) -> None:
    """Until it lets somebody in: it listens a moment before that, and longer on a busy machine."""
    driver = importlib.import_module("psycopg2")
    deadline = time.monotonic() + 60
    while True:
        try:
            driver.connect(host="127.0.0.1", port=port, user="lake", password=password, dbname="postgres").close()
            return
        except driver.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
