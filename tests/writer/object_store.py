"""A small S3 on this machine: enough of the protocol for one writer, and a record of who asked for what."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class ObjectStore:
    """What the server holds.

    Attributes:
        endpoint: Where it listens.
        objects: Bodies by ``bucket/key``.
        parts: Parts of uploads that are not complete.
        keys: Access key ids that signed requests.
        refuse: True to answer every write with 403.
    """

    endpoint: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    refuse: bool = False


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server for the length of the block."""
    store = ObjectStore()
    handler = type("Handler", (_Handler,), {"store": store})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    store.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectStore

    def do_PUT(self) -> None:
        body = self._body()
        if self._refused():
            return
        if "partNumber" in self._query:
            self.store.parts.setdefault(self._name, {})[int(self._query["partNumber"][0])] = body
        else:
            self.store.objects[self._name] = body
        self._answer(200, etag=True)

    def do_POST(self) -> None:
        self._body()
        if self._refused():
            return
        if "uploads" in self._query:
            self._answer(200, "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
            return
        if "delete" in self._query:
            self._answer(200, "<DeleteResult></DeleteResult>")
            return
        parts = self.store.parts.pop(self._name)
        self.store.objects[self._name] = b"".join(parts[number] for number in sorted(parts))
        self._answer(200, "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>")

    def do_HEAD(self) -> None:
        self._answer(200 if self._name in self.store.objects or "/" not in self._name else 404)

    def do_DELETE(self) -> None:
        self.store.parts.pop(self._name, None)
        self.store.objects.pop(self._name, None)
        self._answer(204)

    def do_GET(self) -> None:
        self._answer(200, "<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>")

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    @property
    def _query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    @property
    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).strip("/")

    def _refused(self) -> bool:
        if self.store.refuse:
            self._answer(403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        return self.store.refuse

    def _body(self) -> bytes:
        found = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        if found:
            self.store.keys.add(found[1])
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(_chunks(self.rfile))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        wrapped = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return b"".join(_chunks(BytesIO(body))) if wrapped else body

    def _answer(self, status: int, text: str = "", *, etag: bool = False) -> None:
        self.send_response(status)
        if etag:
            self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())


def _chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    """Chunks of HTTP's and of AWS's encoding: each follows its length in hexadecimal, the last one is empty."""
    while length := int(stream.readline().split(b";")[0], 16):
        yield stream.read(length)
        stream.readline()
    while stream.readline().strip():
        pass
