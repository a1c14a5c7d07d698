"""Collectors of OpenTelemetry on the loopback: one that takes what is pushed to it, and others that do not."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from servers.ports import free_port

PATIENCE_SECONDS = 60


@contextmanager
def away() -> Iterator[tuple[int, threading.Event]]:
    """Nobody listens at the port; nobody is ever reached."""
    found = threading.Event()
    found.set()
    yield free_port(), found


@contextmanager
def slow() -> Iterator[tuple[int, threading.Event]]:
    """It takes connections, and answers none until the block ends."""
    reached, taken = threading.Event(), list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            taken.append(server.accept()[0])
            reached.set()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], reached
        for one in taken:
            one.close()


@contextmanager
def refusing() -> Iterator[tuple[int, threading.Event]]:
    """It answers each push with 403."""
    with answering(403) as (port, reached, _):
        yield port, reached


@contextmanager
def answering(status: int) -> Iterator[tuple[int, threading.Event, list[bytes]]]:
    """It answers each push with this status; the list has what was pushed."""
    reached, pushed = threading.Event(), list[bytes]()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            pushed.append(self.rfile.read(int(self.headers["Content-Length"])))
            reached.set()
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port, reached, pushed
        finally:
            server.shutdown()
            thread.join()


COLLECTORS = (away, slow, refusing)
