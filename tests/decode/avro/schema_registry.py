"""A small Schema Registry on loopback, which tests fill, lock and break."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from testkit.http_servers import serving

NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


@dataclass
class SchemaRegistry:
    """What it has, and what it was asked.

    Attributes:
        schemas: Answers by id.
        subjects: Answers by subject and version.
        credentials: User and password to ask for; None lets everybody in.
        broken: Status and body of the next answers, before it goes well again.
        asked: Path and authorization of every request.
    """

    schemas: dict[int, Any] = field(default_factory=dict)
    subjects: dict[tuple[str, int], Any] = field(default_factory=dict)
    credentials: tuple[str, str] | None = None
    broken: list[tuple[int, bytes]] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        self.asked.append((path, authorization))
        if self.broken:
            return self.broken.pop(0)
        if self.credentials and authorization != f"Basic {b64encode(':'.join(self.credentials).encode()).decode()}":
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        match path.strip("/").split("/"):
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
            case ["subjects", subject, "versions", version]:
                found = self.subjects.get((subject, int(version)))
            case _:
                return 404, b"404 page not found"
        return (200, json.dumps(found).encode()) if found else (404, json.dumps(NOT_FOUND).encode())


def registered(schema: Any, **more: Any) -> dict[str, Any]:
    """A schema as a registry answers it."""
    return {"schema": json.dumps(schema), **more}


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    with serving(Handler) as port:
        registry.url = f"http://127.0.0.1:{port}"
        yield registry
