"""A small S3 on this machine: enough of the protocol for one writer, and a record of who asked for what."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase, BytesIO
from urllib.parse import parse_qs, unquote, urlsplit

from testkit.http_servers import serving


@dataclass
class ObjectStore:
    """What the server holds.

    Attributes:
        endpoint: Where it listens.
        objects: Bodies by ``bucket/key``.
        parts: Parts of uploads that are not complete.
        keys: Access key ids that signed requests.
        refuse: True to answer every write with 403.
        conditional: False to ignore the condition that nothing is there, as some servers do.
        knows_condition: False to answer a put that has a condition with 501, as other servers do.
        lost_answers: So many of the next puts with a condition are carried out, and the connection is cut.
    """

    endpoint: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    refuse: bool = False
    conditional: bool = True
    knows_condition: bool = True
    lost_answers: int = 0


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server for the length of the block."""
    store = ObjectStore()
    handler = type("Handler", (_Handler,), {"store": store})
    with serving(handler) as port:
        store.endpoint = f"http://127.0.0.1:{port}"
        yield store


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body of an answer do not wait for each other
    store: ObjectStore

    def do_PUT(self) -> None:
        body = self._body()
        if self._refused():
            return
        condition = "If-None-Match" in self.headers
        if condition and not self.store.knows_condition:
            self._answer(501, "<Error><Code>NotImplemented</Code><Message>If-None-Match</Message></Error>")
            return
        if condition and self.store.conditional and self._name in self.store.objects:
            self._answer(412, "<Error><Code>PreconditionFailed</Code><Condition>If-None-Match</Condition></Error>")
            return
        if "partNumber" in self._query:
            self.store.parts.setdefault(self._name, {})[int(self._query["partNumber"][0])] = body
        else:
            self.store.objects[self._name] = body
        if condition and self.store.lost_answers:
            self.store.lost_answers -= 1
            self.close_connection = True
            return
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
        there = self._name in self.store.objects or "/" not in self._name
        self._answer(200 if there else 404, size=len(self.store.objects.get(self._name, b"")), etag=there)

    def do_DELETE(self) -> None:
        self.store.parts.pop(self._name, None)
        self.store.objects.pop(self._name, None)
        self._answer(204)

    def do_GET(self) -> None:
        if "/" not in self._name:
            self._list(self._query.get("prefix", [""])[0], self._query.get("delimiter", [""])[0])
        elif self._name in self.store.objects:
            self._answer_bytes(self.store.objects[self._name])
        else:
            self._answer(404, "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")

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

    def _list(self, prefix: str, delimiter: str) -> None:
        keys = sorted(name.partition("/")[2] for name in self.store.objects if name.startswith(f"{self._name}/"))
        keys = [key for key in keys if key.startswith(prefix)]
        folders = {
            prefix + key[len(prefix) :].partition(delimiter)[0] + delimiter
            for key in keys
            if delimiter and delimiter in key[len(prefix) :]
        }
        objects = [key for key in keys if not any(key.startswith(folder) for folder in folders)]
        listed = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.store.objects[f'{self._name}/{key}'])}</Size>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>1</ETag></Contents>"
            for key in objects
        )
        common = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        count = f"<KeyCount>{len(objects) + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>"
        self._answer(200, f"<ListBucketResult>{count}{listed}{common}</ListBucketResult>")

    def _answer_bytes(self, body: bytes) -> None:
        """The whole object, or the range that is asked for."""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        part = body[int(found[1]) : int(found[2]) + 1 if found[2] else None] if found else body
        self.send_response(206 if found else 200)
        if found:
            first = int(found[1])
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(part)

    def _answer(self, status: int, text: str = "", *, etag: bool = False, size: int | None = None) -> None:
        self.send_response(status)
        if etag:
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.send_header("Content-Length", str(len(text) if size is None else size))
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
