"""Converts Avro values of any type to Arrow arrays of a table's types: records by field name, unions by branch.

Every value is read to its end, even if no column needs it. A column without a field in the record is NULL.

A reader that forgives reads a value that does not fit its optional column as NULL, and marks it. It also marks a value
with a field for which there is no column. Bytes that are not a value of the writer's type are never forgiven.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakesink.decode.avro import schema as avro
from lakesink.decode.avro.cursor import Cursor, Mask, Whole
from lakesink.decode.avro.scalars import misfits, nulls, read_scalar, read_symbols, read_variable_decimals
from lakesink.rows.nested import all_null, with_duplicate_keys, without_validity
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type, arrow_type

_FRAMES = {avro.Reference: 1, avro.Union: 2, avro.Record: 3, avro.ArrayOf: 5, avro.MapTo: 5}
"""Calls within one another for one level of a nested type."""
_MOST_FRAMES = 700
"""Python's stack has a thousand, and the callers need some. A value that is nested deeper is a misfit."""
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
"""Records of decimals, each with its own scale."""
_SCALE_AND_DIGITS = Struct(
    (
        Field(0, "scale", required=True, type=Primitive("int")),
        Field(0, "value", required=True, type=Primitive("binary")),
    )
)
_TEXT, _NULL = avro.Scalar("string"), avro.Scalar("null")

Items = list[pa.Array | None]
"""The columns of an item: the item, or a key and its value; None where no column wants them."""


@dataclass(slots=True)
class ValueReader:
    """Reads values that were written with one schema.

    Attributes:
        forgives: True to read a misfit in an optional field as NULL, and to mark values of which a part is left out.
        encoding: How texts spell the bytes of BINARY columns; None if no text is taken for bytes.
    """

    schema: avro.WriterSchema
    forgives: bool = False
    encoding: BinaryEncoding | None = None
    _frames: int = field(default=0, init=False)

    def read(self, kind: avro.Kind, wanted: Type | None, cursor: Cursor) -> pa.Array | None:  # noqa: PLR0911 - one for each type
        """Values of an Avro type; None if `wanted` is None. Moves the cursor to their ends and marks misfits."""
        frames = _FRAMES.get(type(kind), 0)
        if self._frames + frames > _MOST_FRAMES:
            return misfits(wanted, cursor)
        self._frames += frames
        try:
            match kind:
                case avro.Scalar("null"):
                    return nulls(wanted, len(cursor))
                case avro.Reference(name) if cursor.active.any():  # else a recursive type has no end
                    return self.read(self.schema.named[name], wanted, cursor)
                case avro.Union(branches):
                    return self._union(branches, wanted, cursor)
                case avro.Scalar() if wanted is None or isinstance(wanted, Primitive):
                    return read_scalar(kind, wanted, cursor, self.encoding)
                case avro.Enumeration() if wanted is None or isinstance(wanted, Primitive):
                    return read_symbols(kind, wanted, cursor)
                case avro.Record() if wanted is None or isinstance(wanted, Struct):
                    return self._record(kind, wanted, cursor)
                case avro.ArrayOf() if wanted is None or isinstance(wanted, ListOf):
                    return self._array(kind, wanted, cursor)
                case avro.MapTo() if wanted is None or isinstance(wanted, MapOf):
                    return self._map(kind, wanted, cursor)
                case _:
                    return self._other(kind, wanted, cursor)
        finally:
            self._frames -= frames

    def _other(self, kind: avro.Kind, wanted: Type | None, cursor: Cursor) -> pa.Array | None:
        """Values of a type that is not the column's: misfits, unless they are decimals in records."""
        is_decimal = isinstance(kind, avro.Record) and kind.meaning == _VARIABLE_SCALE
        if is_decimal and isinstance(wanted, Primitive) and wanted.decimal:
            return read_variable_decimals(cursor, self.read(kind, _SCALE_AND_DIGITS, cursor), wanted)
        return misfits(wanted, cursor)

    def _union(self, branches: tuple[avro.Kind, ...], wanted: Type | None, cursor: Cursor) -> pa.Array | None:
        number = cursor.varint()
        cursor.fail((number < 0) | (number >= len(branches)))
        parts: list[tuple[Mask, pa.Array]] = []
        for position, branch in enumerate(branches):
            chosen = cursor.active & (number == position)
            if branch == _NULL or not chosen.any():
                continue
            part = cursor.only(chosen)
            values = self.read(branch, wanted, part)
            cursor.join(part, chosen)
            if values is not None:
                parts.append((chosen, values))
        return None if wanted is None else _together(parts, wanted, cursor)

    def _record(self, record: avro.Record, wanted: Struct | None, cursor: Cursor) -> pa.Array | None:
        if wanted is None:
            for _, kind in record.fields:
                self.read(kind, None, cursor)
            return None
        columns = {field.name: field for field in wanted.fields}
        found = {}
        for name, kind in record.fields:
            if name in columns:
                found[name] = self._field(kind, columns[name], cursor)
            elif wanted.is_open:
                self.read(kind, None, cursor)
            else:
                self._without_column(kind, cursor)
        arrays = [found[field.name] if field.name in found else self._missing(field, cursor) for field in wanted.fields]
        return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(wanted)), mask=pa.array(~cursor.active))

    def _field(self, kind: avro.Kind, field: Field, cursor: Cursor) -> pa.Array:
        """Values of a field, of an element, or of a key or value of a map; see `forgives`."""
        before = replace(cursor)
        values = self.read(kind, field.type, cursor)
        assert values is not None
        if field.required and values.null_count:
            cursor.fail(values.is_null().to_numpy(zero_copy_only=False))
        if self.forgives and field.forgives and cursor.active is not before.active:
            ends = before.only(~cursor.active)
            self.read(kind, None, ends)
            cursor.forgive(before, ends)
        return values

    def _without_column(self, kind: avro.Kind, cursor: Cursor) -> None:
        if self.forgives:
            if isinstance(kind, avro.Union):  # a null in a union inside of it may count as a value
                of_null = [number for number, branch in enumerate(kind.branches) if branch == _NULL]
                cursor.mark(cursor.active & ~np.isin(replace(cursor).varint(), of_null))
            else:
                cursor.mark(cursor.active & (kind != _NULL))
        self.read(kind, None, cursor)

    def _missing(self, field: Field, cursor: Cursor) -> pa.Array:
        if field.required:
            cursor.fail(cursor.active)
        return all_null(len(cursor), arrow_type(field.type))

    def _array(self, kind: avro.ArrayOf, wanted: ListOf | None, cursor: Cursor) -> pa.Array | None:
        if wanted is None:
            _items(cursor, [None], lambda part: [self.read(kind.items, None, part)])
            return None
        element = wanted.element
        holders, [values] = _items(cursor, [element.type], lambda part: [self._field(kind.items, element, part)])
        return _list(arrow_type(wanted), cursor, holders, values)

    def _map(self, kind: avro.MapTo, wanted: MapOf | None, cursor: Cursor) -> pa.Array | None:
        if wanted is None:
            entry = avro.Record((("key", _TEXT), ("value", kind.values)))
            _items(cursor, [None], lambda part: [self._record(entry, None, part)])
            return None
        key, value = wanted.key, wanted.value
        holders, [keys, values] = _items(
            cursor,
            [key.type, value.type],
            lambda part: [self._field(_TEXT, key, part), self._field(kind.values, value, part)],
        )
        assert keys is not None
        target = arrow_type(wanted)
        twice = np.zeros(len(cursor), np.bool_)
        twice[with_duplicate_keys(pa.array(holders), keys).to_numpy()] = True
        cursor.fail(twice)
        keys = without_validity(keys) if keys.null_count else keys  # a map must not contain failed values' NULLs
        pairs = pa.StructArray.from_arrays([keys, values], fields=[target.key_field, target.item_field])
        return _list(target, cursor, holders, pairs)


def _together(parts: list[tuple[Mask, pa.Array]], wanted: Type, cursor: Cursor) -> pa.Array:
    """Each value from its branch; NULL for a value without a branch."""
    if not parts:
        return all_null(len(cursor), arrow_type(wanted))
    if len(parts) == 1:
        return parts[0][1]
    rows = len(cursor)
    position = np.zeros(rows, np.int64)
    for number, (chosen, _) in enumerate(parts):
        position[chosen] = np.flatnonzero(chosen) + number * rows
    none = ~np.logical_or.reduce([chosen for chosen, _ in parts])
    return pa.concat_arrays([values for _, values in parts]).take(pa.array(position, mask=none))


def _items(cursor: Cursor, wanted: Sequence[Type | None], read: Callable[[Cursor], Items]) -> tuple[Whole, Items]:
    """All items of arrays or maps, after the number of the value of each. A round reads the next item of each value."""
    active = np.flatnonzero(cursor.active)
    part = cursor.pick(active)
    left = np.zeros(len(active), np.int64)
    holders: list[Whole] = []
    rounds: list[Items] = []
    while len(active):
        left = _next_block(part, left)
        going = part.active & (left > 0)
        if not going.all():
            cursor.put(active, part)
            active, left, part = active[going], left[going], part.pick(np.flatnonzero(going))
        if len(active):
            rounds.append(read(part))
            holders.append(active)
            left = left - 1
    if not rounds:
        return np.empty(0, np.int64), [nulls(kind, 0) for kind in wanted]
    return _in_order(holders, rounds)


def _next_block(part: Cursor, left: Whole) -> Whole:
    """Items left in each value's block, or in its next block if this one has ended; 0 after the last block."""
    ended = left == 0
    if not ended.any():
        return left
    head = part.only(ended)
    count = head.varint()
    sized = count < 0
    if sized.any():
        size = head.only(sized)
        size.varint()
        head.join(size, sized)
        count = np.abs(count)
    head.fail((count < 0) | (count > head.end - head.at))  # an item takes at least one byte
    part.join(head, ended)
    return np.where(ended, np.where(head.active, count, 0), left)


def _in_order(holders: list[Whole], rounds: list[Items]) -> tuple[Whole, Items]:
    all_holders = np.concatenate(holders)
    if len(rounds) == 1:
        return all_holders, rounds[0]
    order = np.argsort(all_holders, kind="stable")
    positions = pa.array(order)
    columns = [
        None if items[0] is None else pa.concat_arrays(items).take(positions) for items in zip(*rounds, strict=True)
    ]
    return all_holders[order], columns


def _list(target: pa.DataType, cursor: Cursor, holders: Whole, values: pa.Array) -> pa.Array:
    """A list or map from the items of each value."""
    offsets = np.zeros(len(cursor) + 1, np.int32)
    np.cumsum(np.bincount(holders, minlength=len(cursor)), out=offsets[1:])
    buffers = [cursor.validity(), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(target, len(cursor), buffers, children=[values])
