"""Finds the values that Debezium writes in place of one that the log of the database does not have. Pure.

A placeholder has the type of its column: a text, its bytes, an array or map made of them, or a point of PostGIS. It
never becomes a value of the table. A column is searched as a whole first, because almost no column has one.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from functools import cache, reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_raw import as_written
from lakesink.decode.json_scalars import Parsed, either, holding, without
from lakesink.decode.misfits import Found
from lakesink.rows.nested import as_list
from lakesink.rows.schema import Field, sql_type_of
from lakesink.rows.unfit import all_but

_TEXT = "__debezium_unavailable_value"
"""Debezium's default for its option ``unavailable.value.placeholder``."""
HELD = "Debezium's placeholder of a value that the log of the database does not have"
IN_REST = Found(HELD, expected="values for the rescue column; set REPLICA IDENTITY FULL")
_BYTES = _TEXT.encode()
_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""What Java's ``UUID.nameUUIDFromBytes`` makes of it."""
_ALONE = (_TEXT, base64.b64encode(_BYTES).decode(), _BYTES.hex(), _UUID)
"""The text, and how its bytes are spelled."""
_NUMBERS = list(_BYTES)
_AS_ITEMS = (
    _NUMBERS,
    [number * 1_000 for number in _NUMBERS],
    [str(number) for number in _NUMBERS],
    [str(float(number)) for number in _NUMBERS],
)
"""Its bytes as items of an array: numbers, moments of which the numbers may be milliseconds, and texts of numbers."""
_POINTS = tuple(
    bytes.fromhex("0101000020E6100000" + point)
    for point in ("000000FC83D797C1000000FC83D797C1", "0C21E7FDFF7F66401842CEFBFF7F5640")
)
"""Debezium's geometry (-99999999 -99999999) and geography (179.999999 89.999999), as PostGIS has them in bytes."""
_IN_BASE64 = tuple(base64.b64encode(point).decode() for point in _POINTS)
_SRID = 4326
_IN_JSON = (
    *([one] for one in _ALONE),
    _NUMBERS,
    [float(number) for number in _NUMBERS],
    {_TEXT: _TEXT},
    *({"wkb": point, "srid": _SRID} for point in _IN_BASE64),
)
_AS_JSON = tuple(json.dumps(one, separators=(",", ":")) for one in (*_ALONE, *_IN_BASE64, *_IN_JSON))
_TEXTS = (*_ALONE, *_IN_BASE64, *_AS_JSON)
_KNOWN: Mapping[pa.DataType, Sequence[str | bytes]] = {
    pa.string(): _TEXTS,
    pa.binary(): (_BYTES, *_POINTS),
    pa.binary(16): (bytes.fromhex(_UUID.replace("-", "")),),
    pa.binary(len(_BYTES)): (_BYTES,),
}


def available(parsed: Parsed) -> Parsed:
    """The values, with placeholders among the misfits."""
    found = _placeholders(parsed.values)
    if found is None:
        return parsed
    return Parsed(without(parsed.values, found), either(parsed.misfits, found), parsed.rest)


def unavailable(column: Field) -> Found:
    """The placeholder in a column, as a value that does not fit."""
    return Found(HELD, column=column.name, expected=f"{sql_type_of(column.type)}; set REPLICA IDENTITY FULL")


def is_placeholder(text: str) -> bool:
    """True for JSON that contains the placeholder."""
    compact = as_written(text)
    return any(one in compact for one in _AS_JSON)


def _placeholders(values: pa.Array) -> pa.BooleanArray | None:
    """True for values that are a placeholder or contain one; None if there are none."""
    kind = values.type
    if pa.types.is_struct(kind):
        return reduce(either, map(_placeholders, values.flatten()), None)
    if pa.types.is_map(kind):
        entries = as_list(values)
        return holding(entries, _placeholders(entries.flatten()))
    if pa.types.is_list(kind):
        return either(holding(values, _placeholders(values.flatten())), _numbers(values))
    return _known(values, _known_of(kind)) if kind in _KNOWN else None


@cache
def _known_of(kind: pa.DataType) -> pa.Array:
    """Made when it is needed: to make an array imports pandas, which tasks without documents do without."""
    return pa.array(_KNOWN[kind], kind)


def _known(values: pa.Array, known: pa.Array) -> pa.BooleanArray | None:
    """True for values that are known; only those of the same length are compared."""
    positions = pc.indices_nonzero(pc.is_in(pc.binary_length(values), pc.binary_length(known)))
    found = positions.filter(pc.is_in(values.take(positions), known))
    return pc.invert(all_but(len(values), found.to_pylist())) if len(found) else None


def _numbers(values: pa.ListArray) -> pa.BooleanArray | None:
    """True for arrays whose items are the bytes of the placeholder as numbers, texts of numbers, dates or moments."""
    length = pc.equal(pc.list_value_length(values), len(_NUMBERS))
    positions = pc.indices_nonzero(length)
    if not len(positions):
        return None
    chosen, kind = values.take(positions), values.type.value_type
    if pa.types.is_date32(kind):
        chosen = chosen.cast(pa.list_(pa.int32()))
    elif pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        chosen = chosen.cast(pa.list_(pa.int64()))
    first = pc.list_element(chosen, 0).to_pylist()  # an item of each array, before all of them are read
    begins = [items[0] for items in _AS_ITEMS]
    found = {
        position
        for at, position in enumerate(positions.to_pylist())
        if first[at] in begins and chosen[at].as_py() in _AS_ITEMS
    }
    return pc.invert(all_but(len(values), found)) if found else None
