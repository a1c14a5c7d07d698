"""Describes the values of a malformed event in JSON that do not fit. Pure."""

from collections.abc import Sequence

import pyarrow as pa

from lakesink.decode.debezium.connect_types import Types
from lakesink.decode.debezium.conversions import with_bytes
from lakesink.decode.debezium.placeholders import is_placeholder, unavailable
from lakesink.decode.debezium.wrappers import opened
from lakesink.decode.json_misfits import (
    ABSENT,
    OBJECT,
    UNKNOWN_MISFIT,
    Number,
    Object,
    as_written,
    invalid_text,
    kind_in_words,
    parsed,
)
from lakesink.decode.json_raw import first_members
from lakesink.decode.json_values import JsonReader
from lakesink.decode.misfits import Found, with_option
from lakesink.rows.schema import Field, Primitive, Struct, sql_type_of

_WITHOUT_UNIT = frozenset({"time", "timestamp", "timestamptz"})


def explained(value: bytes | None, row: str, wrong: Sequence[Field], reader: JsonReader) -> list[Found]:
    """Descriptions for a document of which a row is wrong in some columns."""
    invalid = invalid_text(value)
    if invalid is not None or value is None:
        return [] if invalid is None else [invalid]
    wrapped = opened([value.decode()], [0])
    text, types = (wrapped[0].texts[0].as_py(), wrapped[0].types) if wrapped else (value.decode(), None)
    event = parsed(text)
    found = _in_row(text, row, event.get(row), wrong, types, reader) if isinstance(event, Object) and wrong else []
    return list(dict.fromkeys(found)) or [UNKNOWN_MISFIT]


def _in_row(text: str, name: str, row: object, wrong: Sequence[Field], types: Types, reader: JsonReader) -> list[Found]:
    if not isinstance(row, Object):
        return [Found(kind_in_words(row), as_written(row), name, OBJECT)]
    found: list[Found] = []
    for one in wrong:
        value = row.get(one.name, ABSENT)
        if is_placeholder(as_written(value)):
            found.append(unavailable(one))
        elif isinstance(one.type, Primitive):
            found.append(with_option(_of_value(value, one, types), one.type, reader.encoding))
        elif with_bytes(one.type, one.name, types) is not None:
            found.append(Found(kind_in_words(value), as_written(value), one.name, sql_type_of(one.type)))
        else:
            [written] = first_members(text, (name,))
            found += reader.explain(pa.array([(written or "").encode()]), Struct((one,)))[0]
    return found


def _of_value(value: object, column: Field, types: Types) -> Found:
    expected = sql_type_of(column.type)
    known = None if types is None else types.get(column.name)
    kind = kind_in_words(value) + (f" ({known.name or known.type})" if known is not None else "")
    name = column.type.name if isinstance(column.type, Primitive) else ""
    if types is None and name in _WITHOUT_UNIT and isinstance(value, Number):
        expected += " as text (time.precision.mode=isostring), or a schema (schemas.enable=true)"
    return Found(kind, as_written(value), column.name, expected)
