"""The parts of a sink: their folder, and the receipt of one task for those that it closed, bounded and versioned.

Uses the standard library only. A receipt comes from a less trusted process than the driver: `decode_parts` accepts this
form only, with names of this batch's and task's parts.
"""

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lakesink_protocol.receipt_json import MOST_IN_A_BATCH, ReceiptInvalid

PARTS_VERSION = 2
MAX_RECEIPT_BYTES = 64 * 1024 * 1024
R = TypeVar("R")
_COUNTS = range(2**63)
_IN_A_PART = range(1, 2**63)
"""Rows and bytes of a part, which is never empty."""
_TASKS = range(2**31)
_PART_NAME = re.compile(r"(?P<stem>[A-Za-z0-9._-]+)-(?P<task>\d{5,10})-[0-9a-f-]{36}\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    """One closed file of rows, by its name in the folder of parts."""

    name: str
    rows: int
    size_bytes: int


class SinkFolder:
    """The folder of one sink below a directory, which is a path or URI without a trailing slash, and what is in it."""

    def __init__(self, directory: str, sink_id: str, within: str = "") -> None:
        self.directory, self.sink_id = directory, sink_id
        self.root = f"{directory}/{within}{sink_id}"
        self.parts = f"{self.root}/parts"
        self.prepared = f"{self.root}/prepared"  # the records of prepared batches

    def part(self, part: Part) -> str:
        """Location of a part."""
        return f"{self.parts}/{part.name}"


@dataclass(frozen=True, slots=True)
class PartsReceipt:
    """The result of one task after it has closed all its parts; `parts` is empty if it had no rows."""

    task: int
    rows: int
    parts: tuple[Part, ...]


def new_part_name(stem: str, task: int) -> str:
    """A unique name for a part."""
    return f"{stem}-{task:05d}-{uuid.uuid4()}.parquet"


def part_stem(sink_id: str, batch_id: int) -> str:
    """Start of the names of a batch's parts."""
    return f"{sink_id}-{batch_id}"


def is_part_name(name: str, stem: str, task: int | None = None) -> bool:
    """True if `new_part_name` can return this name, for any task if none is given."""
    found = _PART_NAME.fullmatch(name)
    return found is not None and found["stem"] == stem and task in (None, int(found["task"]))


def encode_parts(receipt: PartsReceipt) -> bytes:
    """The receipt as JSON."""
    document = {
        "v": PARTS_VERSION,
        "task": receipt.task,
        "rows": receipt.rows,
        "parts": [[part.name, part.rows, part.size_bytes] for part in receipt.parts],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_parts(data: bytes, stem: str) -> PartsReceipt:
    """The receipt in `data`; raises ReceiptInvalid unless it is of this batch and version, and not too large."""

    def read(document: Mapping[str, Any]) -> PartsReceipt:
        task, rows = _whole(document["task"], _TASKS), _whole(document["rows"], _COUNTS)
        parts = parts_from_json(document["parts"], stem, task)
        if rows != sum(part.rows for part in parts):
            raise ReceiptInvalid("a task received another number of rows than its parts contain")
        return PartsReceipt(task, rows, parts)

    return read_receipt(data, PARTS_VERSION, read)


def read_receipt(data: bytes, version: int, read: Callable[[Mapping[str, Any]], R]) -> R:
    """What `read` makes of a receipt of this version; raises ReceiptInvalid, whatever it finds in untrusted data."""
    if len(data) > MAX_RECEIPT_BYTES:
        raise ReceiptInvalid(f"larger than {MAX_RECEIPT_BYTES} bytes")
    try:
        return read(_of_version(json.loads(data), version))
    except ReceiptInvalid:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ReceiptInvalid(f"not a receipt: {type(error).__name__}") from error


def _of_version(document: Mapping[str, Any], version: int) -> Mapping[str, Any]:
    found = document["v"]
    if type(found) is not int or found != version:
        raise ReceiptInvalid(f"receipt version {str(found)[:20]}, this driver reads {version}")
    return document


def parts_from_json(document: Any, stem: str, task: int | None = None) -> tuple[Part, ...]:
    """The parts as a receipt or a prepared record describes them."""
    if not isinstance(document, list):
        raise ReceiptInvalid("a field has the wrong type")
    return tuple(_part(part, stem, task) for part in document)


def _part(document: Any, stem: str, task: int | None) -> Part:
    match document:
        case [str(name), int(rows), int(size)] if is_part_name(name, stem, task):
            return Part(name, _whole(rows, _IN_A_PART), _whole(size, _IN_A_PART))
    raise ReceiptInvalid("a part is malformed, or its name is not from this batch")


def check_batch(parts: Sequence[Part]) -> None:
    """Raise ReceiptInvalid unless these can be the parts of one batch, and their sums fit a marker and its readers."""
    if len({part.name for part in parts}) != len(parts):
        raise ReceiptInvalid("a file is listed twice")
    if not fits_a_marker(parts):
        raise ReceiptInvalid("the batch has more rows or bytes than the limit")


def fits_a_marker(parts: Sequence[Part]) -> bool:
    """True if a marker and its readers can represent the sums of these parts."""
    return max(sum(part.rows for part in parts), sum(part.size_bytes for part in parts)) <= MOST_IN_A_BATCH


def _whole(value: Any, allowed: range) -> int:
    if type(value) is not int or value not in allowed:
        raise ReceiptInvalid("a count is not an integer in its range")
    return value
