"""The JSON of receipts: single values, which are checked, and content files, column by column. Pure."""

import re
import struct
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise, starmap
from operator import attrgetter
from typing import Any, TypeVar

from lakesink_protocol.change import ContentFile

MOST_IN_A_BATCH = 2**53
"""Limit for rows and for bytes: totals of a thousand such batches still fit into 64 bits."""
NOT_A_COUNT = "a count is not a whole number from 0 to 2^63-1"
LARGEST_FIELD_ID = 2**31 - 1
MOST_STATISTICS = 32 * 1024 * 1024
"""Limit for all files of a receipt together: where files are alike, a few bytes stand for the numbers of many."""
_FIELD_ID = re.compile(r"[1-9][0-9]{0,9}")
_COUNTS, _BOUNDS = ("sizes", "values", "nulls", "nans"), ("lower", "upper")
_counts_of = attrgetter("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_bounds_of = attrgetter("lower_bounds", "upper_bounds")
T = TypeVar("T")


class ReceiptInvalid(ValueError):
    """The bytes are not a receipt of this version."""


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


def optional_binary(value: Any) -> bytes | None:
    """The same for what may be None."""
    return None if value is None else binary(value)


def base64_text(value: bytes | None) -> str | None:
    """The inverse of `optional_binary`."""
    return None if value is None else b64encode(value).decode()


def fields_of(file: ContentFile) -> tuple[tuple[int, ...], ...]:
    """The ids of every statistic, and the places of partition values."""
    return (*map(tuple, _counts_of(file)), *map(tuple, _bounds_of(file)), tuple(range(len(file.partition))))


def as_group(files: Sequence[ContentFile]) -> dict[str, Any]:
    """A list for each column: one value for each file, or a single one if all are equal.

    Counts and bounds are by field id. For value counts that are the rows of each file there is no list.
    """
    rows = [file.record_count for file in files]
    counts = zip(_COUNTS, zip(*map(_counts_of, files), strict=True), strict=True)
    bounds = zip(_BOUNDS, zip(*map(_bounds_of, files), strict=True), strict=True)
    found: dict[str, Any] = {
        "path": [file.path for file in files],
        "spec": _shortened([file.spec_id for file in files]),
        "partition": [
            list(map(base64_text, column)) for column in zip(*(file.partition for file in files), strict=True)
        ],
        "rows": _shortened(rows),
        "bytes": _shortened([file.file_size_bytes for file in files]),
        **{name: {key: _shortened(column) for key, column in _by_field(maps)} for name, maps in counts},
        **{name: {key: _joined(column) for key, column in _by_field(maps)} for name, maps in bounds},
        "splits": _shortened([file.split_offsets for file in files]),
        "order": _shortened([file.sort_order_id for file in files]),
    }
    found["values"] = {key: None if column == found["rows"] else column for key, column in found["values"].items()}
    return found


def _by_field(maps: Sequence[Mapping[int, T]]) -> Iterator[tuple[int, list[T]]]:
    return ((field_id, [each[field_id] for each in maps]) for field_id in maps[0])


def _shortened(column: list[T]) -> list[T]:
    return column[:1] if column.count(column[0]) == len(column) else column


def _joined(bounds: list[bytes]) -> tuple[list[int], str]:
    """The sizes of a field's bounds, and one Base64 text of all."""
    return _shortened(list(map(len, bounds))), b64encode(b"".join(bounds)).decode()


def files_in(groups: Iterable[Mapping[str, Any]]) -> Iterator[ContentFile]:
    """The files of a receipt; raises `ReceiptInvalid` or another error of a document with another form."""
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
        _whole_counts(group["order"]),
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
    found = [list(map(optional_binary, column)) for column in columns]
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
