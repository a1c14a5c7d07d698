"""Finds JSON objects that have a member without a column, by counting colons: listing all keys takes ten times as long.

An object has one colon for each member and those inside of its keys and values. So without members for which there is
no column, it has as many colons as its columns' texts, and one for each column that is not NULL. A colon before null
does not count. A text can have more colons than the object only if one is written as an escape: such objects are always
found. Duplicate keys, and escapes and blanks in null, make an object look as if it had such a member.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.joined import any_match
from lakesink.rows.schema import Primitive, Struct

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

_COLON, _BLANK = ord(":"), ord(" ")
_NULL = b"null"
_ESCAPED_COLON = r"\\u003[aA]"
_WITHOUT_COLON = frozenset({"boolean", "int", "long", "float", "double", "date", "uuid"})
"""Types whose texts have no colon if they fit. If they do not fit, the object is affected anyway."""
_BYTES_AT_ONCE = 1 << 20
_ROWS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _Colons:
    """The colons of an array of texts, and the places where the texts begin and end."""

    at: Positions
    ends: Positions

    def between(self, edges: Positions) -> Positions:
        """The number of colons from the text at each edge to the one before the next edge."""
        counts: Positions = np.diff(self.at.searchsorted(self.ends[edges]))
        return counts


def with_unknown_keys(texts: pa.StringArray, columns: Sequence[pa.Array], struct: Struct) -> pa.BooleanArray | None:
    """True for at least the objects with a member, other than null, for which a struct has no field; None if none has.

    `columns` has the texts of the struct's fields as DuckDB found them.
    """
    kinds = [one.type for one in struct.fields]
    without = [isinstance(kind, Primitive) and (kind.name in _WITHOUT_COLON or kind.decimal) for kind in kinds]
    inside = [column for column, has_none in zip(columns, without, strict=True) if not has_none]
    escaped = any_match(texts, _ESCAPED_COLON)
    if not escaped and _count(texts) == sum(map(_count, inside)) + _members(columns):
        return None
    found = _with_more_colons(texts, inside, columns, one_by_one=escaped)
    if escaped:
        written = pc.fill_null(pc.match_substring_regex(texts, _ESCAPED_COLON), pa.scalar(value=False))
        found |= written.to_numpy(zero_copy_only=False)
    return pa.array(found) if found.any() else None


def _members(columns: Sequence[pa.Array]) -> int:
    return sum(len(column) - column.null_count for column in columns)


def _count(texts: pa.StringArray) -> int:
    """Colons in all texts, by parts that stay in the processor's cache."""
    data, _ = _parts(texts)
    starts = range(0, len(data), _BYTES_AT_ONCE)
    return sum(int(np.count_nonzero(data[start : start + _BYTES_AT_ONCE] == _COLON)) for start in starts)


def _with_more_colons(
    texts: pa.StringArray, inside: Sequence[pa.Array], columns: Sequence[pa.Array], *, one_by_one: bool
) -> Mask:
    """True for texts with more colons than their columns account for; by blocks first, if no text may have fewer."""
    # a text with fewer would hide the colons of another one in its block
    found: Mask = np.zeros(len(texts), np.bool_)
    nulls = any(column.null_count for column in columns)  # else a colon before null is of a key without a column
    whole = _colons(texts, nulls=nulls)
    parts = [part for part in (_colons(column, nulls=nulls) for column in inside) if len(part.at)]
    if not one_by_one and len(whole.at) == sum(len(part.at) for part in parts) + _members(columns):
        return found
    members = _members_before(columns, len(texts))
    edges: Positions = np.minimum(np.arange(0, len(texts) + _ROWS_AT_ONCE, _ROWS_AT_ONCE), len(texts))
    blocks = edges[:-1] if one_by_one else edges[:-1][_has_more(whole, parts, members, edges)]
    rows: Positions = np.minimum(blocks[:, None] + np.arange(_ROWS_AT_ONCE + 1), len(texts))
    found[rows[:, :-1][_has_more(whole, parts, members, rows)]] = True
    return found


def _members_before(columns: Sequence[pa.Array], rows: int) -> Positions:
    """For each row, and the end, the number of values other than NULL in the rows before."""
    whole = sum(not column.null_count for column in columns)
    present: Positions = np.full(rows + 1, whole, np.intp)
    present[0] = 0
    for column in columns:
        if column.null_count:
            present[1:] += column.is_valid().to_numpy(zero_copy_only=False)
    return np.cumsum(present, out=present)


def _has_more(whole: _Colons, parts: Sequence[_Colons], members: Positions, edges: Positions) -> Mask:
    expected = sum((part.between(edges) for part in parts), np.diff(members[edges]))
    more: Mask = whole.between(edges) > expected
    return more


def _colons(texts: pa.StringArray, *, nulls: bool) -> _Colons:
    data, ends = _parts(texts)
    colons = np.flatnonzero(data == _COLON)
    return _Colons(_without_null(data, colons) if nulls else colons, ends)


def _without_null(data: Bytes, colons: Positions) -> Positions:
    """The colons that are followed neither by null nor by a blank and null."""
    room = len(data) - len(_NULL) - 2
    then = data[np.minimum(colons + 1, max(len(data) - 1, 0))]
    before = [colons[then == _NULL[0]], colons[(then == _BLANK) & (colons <= room)] + 1]
    nulls: Positions = np.concatenate([found - at for at, found in enumerate(_with_null(data, one) for one in before)])
    if not len(nulls):
        return colons
    kept: Mask = np.ones(len(colons), np.bool_)
    kept[colons.searchsorted(nulls)] = False
    return colons[kept]


def _with_null(data: Bytes, before: Positions) -> Positions:
    """Those positions that null follows."""
    found = before[before < len(data) - len(_NULL)]
    for at, wanted in enumerate(_NULL, 1):
        found = found[data[found + at] == wanted]
    return found


def _parts(texts: pa.StringArray) -> tuple[Bytes, Positions]:
    """The bytes of all texts, and where each of them ends there, from 0 on."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.intp)
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.intp)
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]], ends - ends[0]
