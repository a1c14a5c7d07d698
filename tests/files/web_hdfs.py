"""A small WebHDFS on this machine: what the file sink needs of it, with a NameNode's rename."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from testkit.http_servers import serving

PREFIX = "/webhdfs/v1"


@contextmanager
def web_hdfs(folder: Path) -> Iterator[str]:
    """A server over a folder for the length of the block.

    Yields:
        Host and port.
    """
    handler = type("Handler", (_Handler,), {"folder": folder, "lock": threading.Lock()})
    with serving(handler) as port:
        yield f"127.0.0.1:{port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body of an answer do not wait for each other
    folder: Path
    lock: threading.Lock

    def do_GET(self) -> None:
        path = self._local()
        match self._option("op"):
            case _ if not path.exists():
                self._json(404, {"RemoteException": {"exception": "FileNotFoundException", "message": str(path)}})
            case "GETFILESTATUS":
                self._json(200, {"FileStatus": _status(path)})
            case "LISTSTATUS":
                found = [_status(entry) for entry in sorted(path.iterdir())]
                self._json(200, {"FileStatuses": {"FileStatus": found}})
            case _:
                start, length = int(self._option("offset") or 0), self._option("length")
                data = path.read_bytes()[start:]
                self._bytes(200, data[: int(length)] if length else data)

    def do_PUT(self) -> None:
        body, path = self._body(), self._local()
        match self._option("op"):
            case "MKDIRS":
                path.mkdir(parents=True, exist_ok=True)
                self._json(200, {"boolean": True})
            case "RENAME":
                self._json(200, {"boolean": self._renamed(path)})
            case "CREATE" if not self._option("datanode"):
                self._redirect()
            case _:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(body)
                self._bytes(201, b"")

    def do_POST(self) -> None:
        body, path = self._body(), self._local()
        if not self._option("datanode"):
            self._redirect()
            return
        with path.open("ab") as stream:
            stream.write(body)
        self._bytes(200, b"")

    def do_DELETE(self) -> None:
        path = self._local()
        there = path.exists()
        if path.is_dir():
            shutil.rmtree(path)
        elif there:
            path.unlink()
        self._json(200, {"boolean": there})

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def _renamed(self, path: Path) -> bool:
        """A NameNode renames one at a time, and never onto what is there."""
        target = self.folder / self._option("destination").lstrip("/")
        with self.lock:
            if target.exists() or not path.exists():
                return False
            path.rename(target)
            return True

    def _local(self) -> Path:
        return self.folder / unquote(urlsplit(self.path).path).removeprefix(PREFIX).lstrip("/")

    def _option(self, name: str) -> str:
        return parse_qs(urlsplit(self.path).query).get(name, [""])[0]

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _redirect(self) -> None:
        self.send_response(307)
        self.send_header("Location", f"http://{self.headers['Host']}{self.path}&datanode=1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, status: int, document: object) -> None:
        self._bytes(status, json.dumps(document).encode())

    def _bytes(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _status(path: Path) -> dict[str, object]:
    kind = "DIRECTORY" if path.is_dir() else "FILE"
    return {"pathSuffix": path.name, "type": kind, "length": 0 if path.is_dir() else path.stat().st_size}
