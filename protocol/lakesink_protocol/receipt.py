"""The receipt of one task for its files, as bounded, versioned data. Standard library only; executors import this.

A receipt comes from a less trusted process than the driver. `decode` accepts exactly this form, and the caller still
checks every path against the table's own locations.
"""

import json
import re
import zlib
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from lakesink_protocol.change import ChangeInvalid, ContentFile, SchemaChange, content_of
from lakesink_protocol.quality import Quality, quality_from
from lakesink_protocol.redact import shown

RECEIPT_VERSION = 4
MAX_RECEIPT_BYTES = 256 * 1024 * 1024
COMPRESSION_LEVEL = 1
MOST_IN_A_BATCH = 2**53
"""Limit for rows and for bytes: totals of a thousand such batches still fit into 64 bits."""
NOT_A_COUNT = "a count is not a whole number from 0 to 2^63-1"
MOST_MISFITS = 20
LONGEST_PLACE, LONGEST_WORDS = 300, 120
LARGEST_FIELD_ID = 2**31 - 1
_DIGEST = re.compile(r"[0-9a-f]{32}")
_FIELD_ID = re.compile(r"[1-9][0-9]{0,9}")


class ReceiptInvalid(ValueError):
    """The bytes are not a receipt of this version."""


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
class Receipt:
    """The result of one task, returned exactly once, after every file it wrote is closed.

    Attributes:
        task: Index of the task's partition in the job, from 0.
        schema_id: Schema of the files.
        misfits: The first malformed values, at most `MOST_MISFITS`.
        documents: Rows that had a document; 0 without decoding.
        refused: True if the task found malformed values that must fail the batch. Then it wrote nothing.
        schema_change: Schema change that the task's rows need; None if they need none.
        payload_digest: Sum of the digests of all dead letters, modulo 2^128; 0 without any.
        premises: Digest of the files' schema and spec, because a catalog can assign their ids again.
    """

    task: int
    rows: int
    files: tuple[ContentFile, ...]
    schema_id: int | None = None
    quality: Quality = field(default_factory=Quality)
    misfits: tuple[Misfit, ...] = ()
    documents: int = 0
    refused: bool = False
    premises: str = ""
    schema_change: SchemaChange | None = None
    payload_digest: int = 0


class ReceiptEncoder:
    """Encodes a receipt file by file: a task with many files keeps a few bytes of each, and no statistics.

    The head of a receipt is known last and comes first. Until then the files are kept compressed.
    """

    def __init__(self) -> None:
        self.record_count = 0
        self._separator = ""
        self._packer = zlib.compressobj(COMPRESSION_LEVEL)
        self._packed: list[bytes] = []

    def add(self, file: ContentFile) -> None:
        """Add the receipt's next file."""
        text = self._separator + _json(_file_to_json(file))
        self._packed.append(self._packer.compress(text.encode()))
        self.record_count += file.record_count
        self._separator = ","

    def finish(self, receipt: Receipt) -> bytes:
        """The receipt as compressed JSON with the added files; `receipt` lists none. Call it once, at the end."""
        assert not receipt.files
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
        document = json.loads(_inflate(data))
        _check_version(document["v"])
        return Receipt(
            task=whole_count(document["task"]),
            rows=whole_count(document["rows"]),
            files=tuple(_file_from_json(file) for file in document["files"]),
            schema_id=None if document["schema"] is None else whole_count(document["schema"]),
            quality=quality_from(document["quality"]),
            misfits=_misfits(document["misfits"]),
            documents=whole_count(document["documents"]),
            refused=flag(document["refused"]),
            premises=plain_text(document["premises"]),
            schema_change=_schema_change(document["schema_change"]),
            payload_digest=_digest(document["payload_digest"]),
        )
    except ReceiptInvalid:
        raise
    except ChangeInvalid as error:
        raise ReceiptInvalid(str(error)) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
        raise ReceiptInvalid(f"not a receipt: {type(error).__name__}") from error


def _check_version(version: Any) -> None:
    if type(version) is not int or version != RECEIPT_VERSION:
        raise ReceiptInvalid(f"receipt version {shown(repr(version), 20)}, this driver reads {RECEIPT_VERSION}")


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, MAX_RECEIPT_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise ReceiptInvalid(f"receipt is cut, padded, or larger than {MAX_RECEIPT_BYTES} bytes")
    return text


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _head_to_json(receipt: Receipt) -> dict[str, Any]:
    return {
        "v": RECEIPT_VERSION,
        "task": receipt.task,
        "rows": receipt.rows,
        "schema": receipt.schema_id,
        "quality": receipt.quality.to_json(),
        "misfits": [[one.place, one.column, one.expected, one.found] for one in receipt.misfits],
        "documents": receipt.documents,
        "refused": receipt.refused,
        "premises": receipt.premises,
        "payload_digest": f"{receipt.payload_digest:032x}",
        "schema_change": None if receipt.schema_change is None else receipt.schema_change.to_json(),
    }


def _file_to_json(file: ContentFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "spec": file.spec_id,
        "partition": [None if value is None else b64encode(value).decode() for value in file.partition],
        "rows": file.record_count,
        "bytes": file.file_size_bytes,
        "sizes": file.column_sizes,
        "values": file.value_counts,
        "nulls": file.null_value_counts,
        "nans": file.nan_value_counts,
        "lower": {key: b64encode(value).decode() for key, value in file.lower_bounds.items()},
        "upper": {key: b64encode(value).decode() for key, value in file.upper_bounds.items()},
        "splits": file.split_offsets,
        "content": file.content.value,
        "of": file.referenced_data_file,
    }


def _file_from_json(document: Mapping[str, Any]) -> ContentFile:
    return ContentFile(
        path=plain_text(document["path"]),
        spec_id=whole_count(document["spec"]),
        partition=tuple(None if value is None else binary(value) for value in document["partition"]),
        record_count=whole_count(document["rows"]),
        file_size_bytes=whole_count(document["bytes"]),
        column_sizes=_counts(document["sizes"]),
        value_counts=_counts(document["values"]),
        null_value_counts=_counts(document["nulls"]),
        nan_value_counts=_counts(document["nans"]),
        lower_bounds={_field_id(key): binary(value) for key, value in document["lower"].items()},
        upper_bounds={_field_id(key): binary(value) for key, value in document["upper"].items()},
        split_offsets=tuple(whole_count(offset) for offset in document["splits"]),
        content=content_of(document["content"]),
        referenced_data_file=plain_text(document["of"]),
    )


def whole_count(value: Any) -> int:
    """The value, if it is a count that readers can hold; else raises `ReceiptInvalid`."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ReceiptInvalid(NOT_A_COUNT)
    return value


def plain_text(value: Any) -> str:
    """The value, if it is text; else raises `ReceiptInvalid`."""
    if not isinstance(value, str):
        raise ReceiptInvalid("a text is not a string")
    return value


def flag(value: Any) -> bool:
    """The value, if it is true or false; else raises `ReceiptInvalid`."""
    if not isinstance(value, bool):
        raise ReceiptInvalid("a flag is not true or false")
    return value


def binary(value: Any) -> bytes:
    """The bytes of a Base64 text; raises ValueError."""
    text = plain_text(value)
    if len(text) % 4 or text.endswith("==="):  # Python ignores padding that is too long
        raise ReceiptInvalid("a Base64 text of another length")
    return a2b_base64(text, strict_mode=True)


def _digest(value: Any) -> int:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ReceiptInvalid("a digest is not 32 hexadecimal digits")
    return int(value, 16)


def _schema_change(document: Any) -> SchemaChange | None:
    return None if document is None else SchemaChange.from_json(document)


def _misfits(document: Any) -> tuple[Misfit, ...]:
    if not isinstance(document, list) or len(document) > MOST_MISFITS:
        raise ReceiptInvalid(f"malformed values are not a list of at most {MOST_MISFITS}")
    return tuple(
        Misfit(
            place=shown(plain_text(place), LONGEST_PLACE),
            column=shown(plain_text(column), LONGEST_WORDS),
            expected=shown(plain_text(expected), LONGEST_WORDS),
            found=shown(plain_text(found), LONGEST_WORDS),
        )
        for place, column, expected, found in document
    )


def _counts(document: Mapping[str, Any]) -> dict[int, int]:
    counts = document.values()
    if counts and not (set(map(type, counts)) == {int} and min(counts) >= 0 and max(counts) < 2**63):
        raise ReceiptInvalid(NOT_A_COUNT)
    return dict(zip(map(_field_id, document), counts, strict=True))


@lru_cache(maxsize=4096)
def _field_id(text: str) -> int:
    if not _FIELD_ID.fullmatch(text) or int(text) > LARGEST_FIELD_ID:
        raise ReceiptInvalid(f"a field id is not a whole number from 1 to {LARGEST_FIELD_ID}")
    return int(text)
