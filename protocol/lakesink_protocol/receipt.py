"""The receipt of one task for its files, as bounded, versioned data. Standard library only; executors import this.

A receipt comes from a less trusted process than the driver. `decode` accepts exactly this form, and the caller still
checks every path against the table's own locations.
"""

import json
import re
import struct
import zlib
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise, starmap
from typing import Any, TypeVar

from lakesink_protocol.change import ContentFile
from lakesink_protocol.measures import Tally
from lakesink_protocol.quality import Quality, quality_from
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import OF_CHANGES, SPLITS, TOMBSTONES, KeysFile

RECEIPT_VERSION = 7
MAX_RECEIPT_BYTES = 256 * 1024 * 1024
COMPRESSION_LEVEL = 1
MOST_IN_A_BATCH = 2**53
"""Limit for rows and for bytes: totals of a thousand such batches still fit into 64 bits."""
NOT_A_COUNT = "a count is not a whole number from 0 to 2^63-1"
MOST_MISFITS = 20
LONGEST_PLACE, LONGEST_WORDS = 300, 120
LARGEST_FIELD_ID = 2**31 - 1
_DIGEST, _SHA256 = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{64}")
MOST_STATISTICS = 32 * 1024 * 1024
"""Limit for all files of a receipt together: where files are alike, a few bytes stand for the numbers of many."""
GROUP_BYTES = 512 * 1024
BYTES_OF_A_VALUE = 64
"""So much of its files a task holds, by a rough count, before it encodes them."""
_FIELD_ID = re.compile(r"[1-9][0-9]{0,9}")
_COUNTS, _BOUNDS = ("sizes", "values", "nulls", "nans"), ("lower", "upper")
T = TypeVar("T")


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
        premises: Digest of the files' schema and spec, because a catalog can assign their ids again.
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
        fields = _fields_of(file)
        if fields != self._fields or self._size >= GROUP_BYTES:
            self._end_group()
        self._fields = fields
        self._group.append(file)
        self._size += _bytes_of(file, fields)
        self.record_count += file.record_count

    def _end_group(self) -> None:
        if self._group:
            text = self._separator + _json(_group_to_json(self._group))
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
        document = json.loads(_inflate(data))
        _check_version(document["v"])
        return Receipt(
            task=whole_count(document["task"]),
            rows=whole_count(document["rows"]),
            files=tuple(_files_from_json(document["files"])),
            schema_id=None if document["schema"] is None else whole_count(document["schema"]),
            quality=quality_from(document["quality"]),
            malformed=whole_count(document["malformed"]),
            misfits=_misfits(document["misfits"]),
            refused=flag(document["refused"]),
            premises=plain_text(document["premises"]),
            payload_digest=_digest(document["payload_digest"]),
            left=_left(document["left"]),
            news=plain_text(document["news"]),
            **_changes(document["changes"]),
        )
    except ReceiptInvalid:
        raise
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
        "malformed": receipt.malformed,
        "misfits": [[one.place, one.column, one.expected, one.found] for one in receipt.misfits],
        "refused": receipt.refused,
        "premises": receipt.premises,
        "payload_digest": f"{receipt.payload_digest:032x}",
        "left": None if receipt.left is None else [receipt.left.path, receipt.left.rows, receipt.left.size_bytes],
        "news": receipt.news,
        "changes": _changes_to_json(receipt) if receipt.changes_by_key else None,
    }


def _changes_to_json(receipt: Receipt) -> list[Any]:
    keys = receipt.keys
    file = None if keys is None else [keys.path, keys.task, keys.rows, keys.size_bytes, keys.sha256]
    return [file, *(receipt.changed[one] for one in OF_CHANGES)]


def _counts_of(file: ContentFile) -> Sequence[Mapping[int, int]]:
    return file.column_sizes, file.value_counts, file.null_value_counts, file.nan_value_counts


def _bounds_of(file: ContentFile) -> Sequence[Mapping[int, bytes]]:
    return file.lower_bounds, file.upper_bounds


def _fields_of(file: ContentFile) -> tuple[tuple[int, ...], ...]:
    """The ids of every statistic, and the places of partition values."""
    return (*map(tuple, _counts_of(file)), *map(tuple, _bounds_of(file)), tuple(range(len(file.partition))))


def _bytes_of(file: ContentFile, fields: Sequence[Sequence[int]]) -> int:
    values = chain(file.partition, file.lower_bounds.values(), file.upper_bounds.values())
    return len(file.path) + sum(len(value or b"") for value in values) + BYTES_OF_A_VALUE * sum(map(len, fields))


def _group_to_json(files: Sequence[ContentFile]) -> dict[str, Any]:
    """A list for each column: one value for each file, or a single one if all are equal.

    Counts and bounds are by field id. For value counts that are the rows of each file there is no list.
    """
    rows = [file.record_count for file in files]
    counts = zip(_COUNTS, zip(*map(_counts_of, files), strict=True), strict=True)
    bounds = zip(_BOUNDS, zip(*map(_bounds_of, files), strict=True), strict=True)
    found: dict[str, Any] = {
        "path": [file.path for file in files],
        "spec": _shortened([file.spec_id for file in files]),
        "partition": [list(map(_as_text, column)) for column in zip(*(file.partition for file in files), strict=True)],
        "rows": _shortened(rows),
        "bytes": _shortened([file.file_size_bytes for file in files]),
        **{name: {key: _shortened(column) for key, column in _by_field(maps)} for name, maps in counts},
        **{name: {key: _joined(column) for key, column in _by_field(maps)} for name, maps in bounds},
        "splits": _shortened([file.split_offsets for file in files]),
    }
    found["values"] = {key: None if column == found["rows"] else column for key, column in found["values"].items()}
    return found


def _by_field(maps: Sequence[Mapping[int, T]]) -> Iterator[tuple[int, list[T]]]:
    return ((field_id, [each[field_id] for each in maps]) for field_id in maps[0])


def _shortened(column: list[T]) -> list[T]:
    return column[:1] if column.count(column[0]) == len(column) else column


def _as_text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _joined(bounds: list[bytes]) -> tuple[list[int], str]:
    """The sizes of a field's bounds, and one Base64 text of all."""
    return _shortened(list(map(len, bounds))), b64encode(b"".join(bounds)).decode()


def _files_from_json(groups: Iterable[Mapping[str, Any]]) -> Iterator[ContentFile]:
    left = MOST_STATISTICS
    for group in groups:
        of_each = sum(len(group[name]) for name in (*_COUNTS, *_BOUNDS, "partition"))
        left -= (of_each + max(map(len, group["splits"]), default=0)) * len(group["path"])
        if left < 0:
            raise ReceiptInvalid(f"more than {MOST_STATISTICS} statistics")
        yield from _group_from_json(group)


def _group_from_json(group: Mapping[str, Any]) -> Iterator[ContentFile]:
    paths, rows = _texts(group["path"]), _whole_counts(group["rows"])
    files = len(paths)

    def counts(name: str) -> list[dict[int, int]]:
        columns = {key: rows if column is None else _whole_counts(column) for key, column in group[name].items()}
        return _by_file(columns, files)

    def bounds(name: str) -> list[dict[int, bytes]]:
        return _by_file({key: _bounds(column, files) for key, column in group[name].items()}, files)

    columns: Sequence[list[Any]] = (
        paths,
        _whole_counts(group["spec"]),
        _partitions(group["partition"], files),
        rows,
        _whole_counts(group["bytes"]),
        *map(counts, _COUNTS),
        *map(bounds, _BOUNDS),
        [tuple(_whole_counts(offsets)) for offsets in group["splits"]],
    )
    return starmap(ContentFile, zip(*(_spread(column, files) for column in columns), strict=True))


def _spread(column: list[T], files: int) -> list[T]:
    return column * files if len(column) == 1 else column


def _by_file(columns: Mapping[str, list[T]], files: int) -> list[dict[int, T]]:
    """The values of each file by field id; a single item if those of all are equal."""
    ids = list(map(_field_id, columns))
    if not all(len(column) == 1 for column in columns.values()):
        columns = {key: _spread(column, files) for key, column in columns.items()}
    rows = zip(*columns.values(), strict=True) if columns else [()]
    return [dict(zip(ids, row, strict=True)) for row in rows]


def _partitions(columns: Any, files: int) -> list[tuple[bytes | None, ...]]:
    """Values of each file; none stands for several files, because a value may be long."""
    found = [[None if value is None else binary(value) for value in column] for column in columns]
    if any(len(column) != files for column in found):
        raise ReceiptInvalid("a file without its partition values")
    return list(zip(*found, strict=True)) if found else [()]


def _bounds(column: Any, files: int) -> list[bytes]:
    """The bounds of a field, whose type mostly has one size."""
    sizes, text = column
    each, data = _whole_counts(sizes), binary(text)
    if len(each) == 1 and data and len(data) == each[0] * files:
        return list(chain.from_iterable(struct.iter_unpack(f"{each[0]}s", data)))
    ends = list(accumulate(_spread(each, files), initial=0))
    if ends[-1] != len(data):
        raise ReceiptInvalid("bounds of another size than stated")
    return [data[begin:end] for begin, end in pairwise(ends)]


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


def _left(document: Any) -> LeftRows | None:
    if document is None:
        return None
    path, rows, size = document
    return LeftRows(plain_text(path), whole_count(rows), whole_count(size))


def _changes(document: Any) -> dict[str, Any]:
    """The fields of changes by key."""
    if document is None:
        return {}
    file, *counts = document
    return {"keys": _keys_file(file), "changed": Tally(zip(OF_CHANGES, map(whole_count, counts), strict=True))}


def _keys_file(document: Any) -> KeysFile | None:
    if document is None:
        return None
    path, task, rows, size, sha256 = document
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ReceiptInvalid("a digest is not 64 hexadecimal digits")
    return KeysFile(plain_text(path), whole_count(task), whole_count(rows), whole_count(size), sha256)


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


def _texts(column: Any) -> list[str]:
    if type(column) is not list or not set(map(type, column)) <= {str}:
        raise ReceiptInvalid("a text is not a string")
    return column


def _whole_counts(column: Any) -> list[int]:
    """The list, if all are counts; JSON's true is none, though it equals 1."""
    if type(column) is not list or not set(map(type, column)) <= {int}:
        raise ReceiptInvalid(NOT_A_COUNT)
    if column and not (min(column) >= 0 and max(column) < 2**63):
        raise ReceiptInvalid(NOT_A_COUNT)
    return column


def _field_id(text: str) -> int:
    if not _FIELD_ID.fullmatch(text) or int(text) > LARGEST_FIELD_ID:
        raise ReceiptInvalid(f"a field id is not a whole number from 1 to {LARGEST_FIELD_ID}")
    return int(text)
