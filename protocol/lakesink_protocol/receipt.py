"""The receipt of one task for its files, as bounded, versioned data. Standard library only; executors import this.

A receipt comes from a less trusted process than the driver. `decode` accepts exactly this form, and the caller still
checks every path against the table's own locations.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from itertools import chain
from typing import Any, TypeVar

from lakesink_protocol.change import ContentFile
from lakesink_protocol.measures import Tally
from lakesink_protocol.quality import Quality, quality_from
from lakesink_protocol.receipt_json import ReceiptInvalid, as_group, fields_of, files_in, flag, plain_text, whole_count
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import OF_CHANGES, SPLITS, TOMBSTONES, KeysFile

R = TypeVar("R", "LeftRows", KeysFile)
RECEIPT_VERSION = 8
MAX_RECEIPT_BYTES = 256 * 1024 * 1024
COMPRESSION_LEVEL = 1
MOST_MISFITS, LONGEST_PLACE, LONGEST_WORDS = 20, 300, 120
GROUP_BYTES = 512 * 1024
BYTES_OF_A_VALUE = 64
"""So much of its files a task holds, by a rough count, before it encodes them."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """One malformed value, described in words.

    Attributes:
        place: The document's file, or its Kafka partition and offset, else its row in the task.
        column: Path of names with dots; empty for the document itself.
        found: The kind of value; the value itself only if the user asked for values.
    """

    place: str
    column: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class LeftRows:
    """A file of rows that a task left to the driver, as they came: all votes decide how they are written."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of one task, returned exactly once, after every file it wrote is closed.

    Attributes:
        task: Index of the task's partition in the job, from 0.
        schema_id: Schema of the files.
        malformed: Documents that do not fit; the batch then fails.
        misfits: The first malformed values, at most `MOST_MISFITS`.
        refused: True if what the task found must fail the batch. Then it wrote nothing.
        left: Rows that the task did not write, because the table's schema may follow them; None if there are none.
        news: What these rows need of the schema, as JSON of the sink.
        payload_digest: Sum of the digests of all dead letters, modulo 2^128; 0 without any.
        premises: Digest of the files' schema, spec and order, because a catalog can assign their ids again.
        keys: The file with the keys of the changes that the task wrote; None if it changed no rows by key.
        changed: What the task counted of changes by key, by `OF_CHANGES`.
    """

    task: int
    rows: int
    files: tuple[ContentFile, ...]
    schema_id: int | None = None
    quality: Quality = field(default_factory=Quality)
    malformed: int = 0
    misfits: tuple[Misfit, ...] = ()
    refused: bool = False
    premises: str = ""
    payload_digest: int = 0
    left: LeftRows | None = None
    news: str = ""
    keys: KeysFile | None = None
    changed: Tally = field(default_factory=Tally)

    @property
    def changes(self) -> int:
        """Changes by key that the rows are."""
        return self.rows + self.changed[SPLITS] - self.changed[TOMBSTONES]

    @property
    def changes_by_key(self) -> bool:
        """True if the task changed rows by key, and did not only append."""
        return self.keys is not None or bool(self.changed)


class ReceiptEncoder:
    """Encodes a receipt file by file: a task with many files keeps a few bytes of each, and the statistics of few.

    Neighbouring files with statistics of the same fields are a group. The head of a receipt is known last and comes
    first. Until then the groups are kept compressed.
    """

    def __init__(self) -> None:
        self.record_count = 0
        self._group: list[ContentFile] = []
        self._fields: tuple[tuple[int, ...], ...] = ()
        self._size = 0
        self._separator = ""
        self._packer = zlib.compressobj(COMPRESSION_LEVEL)
        self._packed: list[bytes] = []

    def add(self, file: ContentFile) -> None:
        """Add the receipt's next file."""
        fields = fields_of(file)
        if fields != self._fields or self._size >= GROUP_BYTES:
            self._end_group()
        self._fields = fields
        self._group.append(file)
        values = chain(file.partition, file.lower_bounds.values(), file.upper_bounds.values())
        self._size += len(file.path) + sum(len(value or b"") for value in values)
        self._size += BYTES_OF_A_VALUE * sum(map(len, fields))
        self.record_count += file.record_count

    def _end_group(self) -> None:
        if self._group:
            text = self._separator + _json(as_group(self._group))
            self._packed.append(self._packer.compress(text.encode()))
            self._separator = ","
        self._group, self._size = [], 0

    def finish(self, receipt: Receipt) -> bytes:
        """The receipt as compressed JSON with the added files; `receipt` lists none. Call it once, at the end."""
        assert not receipt.files
        self._end_group()
        head = _json(_head_to_json(receipt) | {"files": []}).removesuffix("]}")
        unpacker, packer = zlib.decompressobj(), zlib.compressobj(COMPRESSION_LEVEL)
        found = [packer.compress(head.encode())]
        found += (packer.compress(unpacker.decompress(part)) for part in (*self._packed, self._packer.flush()))
        return b"".join((*found, packer.compress(b"]}"), packer.flush()))


def encode(receipt: Receipt) -> bytes:
    """The receipt as compressed JSON."""
    encoder = ReceiptEncoder()
    for file in receipt.files:
        encoder.add(file)
    return encoder.finish(replace(receipt, files=()))


def decode(data: bytes) -> Receipt:
    """The receipt in `data`, of this version and of at most `MAX_RECEIPT_BYTES`; else raises `ReceiptInvalid`."""
    try:
        document = _document(data)
        return Receipt(
            task=whole_count(document["task"]),
            rows=whole_count(document["rows"]),
            files=tuple(files_in(document["files"])),
            schema_id=None if document["schema"] is None else whole_count(document["schema"]),
            quality=quality_from(document["quality"]),
            malformed=whole_count(document["malformed"]),
            misfits=_misfits(document["misfits"]),
            refused=flag(document["refused"]),
            premises=plain_text(document["premises"]),
            payload_digest=int(_digest(document["payload_digest"], 32), 16),
            left=_record(LeftRows, document["left"]),
            news=plain_text(document["news"]),
            **_changes(document["changes"]),
        )
    except ReceiptInvalid:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
        raise ReceiptInvalid(f"not a receipt: {type(error).__name__}") from error


def _document(data: bytes) -> Any:
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, MAX_RECEIPT_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise ReceiptInvalid(f"receipt is cut, padded, or larger than {MAX_RECEIPT_BYTES} bytes")
    document = json.loads(text)
    version = document["v"]
    if type(version) is not int or version != RECEIPT_VERSION:
        raise ReceiptInvalid(f"receipt version {shown(repr(version), 20)}, this driver reads {RECEIPT_VERSION}")
    return document


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _head_to_json(receipt: Receipt) -> dict[str, Any]:
    changes = [receipt.keys and astuple(receipt.keys), *(receipt.changed[one] for one in OF_CHANGES)]
    return {
        "v": RECEIPT_VERSION,
        "task": receipt.task,
        "rows": receipt.rows,
        "schema": receipt.schema_id,
        "quality": receipt.quality.to_json(),
        "malformed": receipt.malformed,
        "misfits": list(map(astuple, receipt.misfits)),
        "refused": receipt.refused,
        "premises": receipt.premises,
        "payload_digest": f"{receipt.payload_digest:032x}",
        "left": receipt.left and astuple(receipt.left),
        "news": receipt.news,
        "changes": changes if receipt.changes_by_key else None,
    }


def _digest(value: Any, digits: int) -> str:
    if not isinstance(value, str) or len(value) != digits or not set(value) <= set("0123456789abcdef"):
        raise ReceiptInvalid(f"a digest is not {digits} hexadecimal digits")
    return value


def _changes(document: Any) -> dict[str, Any]:
    """The fields of changes by key."""
    if document is None:
        return {}
    file, *counts = document
    keys = _record(KeysFile, file)
    if keys is not None:
        _digest(keys.sha256, 64)
    return {"keys": keys, "changed": Tally(zip(OF_CHANGES, map(whole_count, counts), strict=True))}


def _record(kind: type[R], document: Any) -> R | None:
    """An object of this class from a list of its fields; None if there is none."""
    if document is None:
        return None
    checks: Mapping[Any, Callable[[Any], Any]] = {str: plain_text, int: whole_count}
    return kind(*(checks[one.type](value) for one, value in zip(fields(kind), document, strict=True)))


def _misfits(document: Any) -> tuple[Misfit, ...]:
    if not isinstance(document, list) or len(document) > MOST_MISFITS:
        raise ReceiptInvalid(f"malformed values are not a list of at most {MOST_MISFITS}")
    words = ((shown(plain_text(place), LONGEST_PLACE), *map(plain_text, rest)) for place, *rest in document)
    return tuple(Misfit(place, *(shown(word, LONGEST_WORDS) for word in rest)) for place, *rest in words)
