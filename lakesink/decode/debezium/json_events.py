"""Reads Debezium's JSON: envelopes, bare or in the wrapper of Kafka Connect's JSON converter, by pointers into them.

One query takes all columns out of an envelope, each as its text; see `json_values` for why. The rows before and after
the change are never written anew, so their numbers keep their digits.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.schema import WriterSchema
from lakesink.decode.debezium import envelopes
from lakesink.decode.debezium.conversions import Conversion, conversion_of, spelled_out, with_bytes, with_digits
from lakesink.decode.debezium.placeholders import HELD, IN_REST, available, is_placeholder, unavailable
from lakesink.decode.debezium.wrappers import ConnectType, Payloads, Types, opened, unwrapped, written_with
from lakesink.decode.json_digits import respelled
from lakesink.decode.json_misfits import (
    ABSENT,
    OBJECT,
    REST_TOO_LARGE,
    UNKNOWN_MISFIT,
    Number,
    Object,
    as_written,
    kind_in_words,
    parsed,
    text_in,
)
from lakesink.decode.json_raw import as_taken, first_members, members
from lakesink.decode.json_scalars import Parsed, converted, either, forgiven, texts_of, wants_json, without
from lakesink.decode.json_values import JsonReader, members_query, other_than, pointer, with_spelling
from lakesink.decode.misfits import SEARCHED, Found, UnknownKeys, with_option
from lakesink.rows.nested import replaced
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.scalars import FALSE
from lakesink.rows.schema import Field, Primitive, Struct, sql_type_of
from lakesink.rows.unfit import all_but

_WITHOUT_UNIT = frozenset({"time", "timestamp", "timestamptz"})
_NO_ROW_BEFORE = '{"before":null,'
_ROWS_BEFORE = "SELECT coalesce(json_type(value, '/before') <> 'NULL', false) FROM documents"
_ROWS_AFTER = "SELECT json_extract(value, '/after') FROM documents WHERE json_type(value, '/after') = 'OBJECT'"
_OPERATION = Field(0, envelopes.OPERATION, required=False, type=Primitive("string"))


@dataclass(frozen=True, slots=True)
class _Part:
    """A member of an envelope, or of its `row`; `encoded` is the type of a nested value with parts in Base64."""

    row: str
    field: Field
    conversion: Conversion | None = None
    encoded: ConnectType | None = None

    @property
    def is_json(self) -> bool:
        """True if its values are taken as JSON, else as texts."""
        return wants_json(self.field.type) if self.conversion is None else self.conversion.takes_json

    @property
    def path(self) -> str:
        """Its JSON pointer; a JSON path if the pointer could also find an item of an array."""
        names = (self.row, self.field.name) if self.row else (self.field.name,)
        return "$" + "".join(f'."{name}"' for name in names) if self.field.name.isdecimal() else pointer(*names)


@dataclass(slots=True)
class JsonEvents:
    """Reads events for one task; see `envelopes.EventReader`.

    Attributes:
        finds: True to find all events with a member of a stored row for which there is no column.
        forgives: True to read a value that does not fit an optional column of a stored row as NULL.
        keeps_placeholders: True to read placeholders as values, which tells them from other values that do not fit.
    """

    columns: envelopes.EventColumns
    unknown: UnknownKeys | None = None
    encoding: BinaryEncoding | None = None
    finds: bool = False
    forgives: bool = False
    keeps_placeholders: bool = False
    _reader: JsonReader = field(init=False)
    _of_bytes: JsonReader = field(init=False)
    _wrapped: list[Payloads] = field(default_factory=list, init=False)
    _schemas: dict[int, tuple[Types, WriterSchema]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._reader = JsonReader(self.unknown, marks=self.finds, forgives=self.forgives, encoding=self.encoding)
        self._of_bytes = copy(self._reader)
        self._of_bytes.encoding = BinaryEncoding.BASE64  # Kafka Connect's converter writes no other, nor `spelled_out`

    def events(self, values: pa.Array) -> envelopes.Events:
        """The events of binary or string documents."""
        texts = texts_of(values)
        parts = unwrapped(texts)
        found = envelopes.together([(part.positions, self._read(part)) for part in parts])
        other = pc.or_(pc.or_(found.empty, found.unreadable), texts.is_null())
        lost = pc.indices_nonzero(pc.and_not(found.operations.is_null(), other))
        again = opened(texts.take(lost).to_pylist(), lost.to_pylist()) if len(lost) else []
        if again:
            everywhere = pa.arange(0, len(texts))
            found = envelopes.together([(everywhere, found), *((part.positions, self._read(part)) for part in again)])
        self._wrapped = [part for part in (*parts, *again) if part.types is not None]
        empty = pc.or_(found.empty, values.is_null())
        return replace(found, empty=empty, unreadable=pc.and_not(pc.or_(found.unreadable, texts.is_null()), empty))

    def reading(self, columns: envelopes.EventColumns, *, forgives: bool) -> "JsonEvents":
        return replace(self, columns=columns, forgives=forgives, unknown=None)

    def by_schema(self, values: pa.Array) -> Iterator[tuple[int, WriterSchema, pa.BooleanArray]]:
        """See `envelopes.EventReader`; bare events have no schema."""
        for part in self._wrapped:
            number, types = id(part.types), part.types or {}
            if number not in self._schemas:
                self._schemas[number] = part.types, written_with(types)  # kept, so that no other gets its number
            yield number, self._schemas[number][1], pc.invert(all_but(len(values), part.positions.to_pylist()))

    def keys(self, values: pa.Array) -> tuple[pa.Array, ...]:
        """The columns of the key from documents, in the same wrapper or bare."""
        texts = texts_of(values)
        _, [objects], _ = self._reader.find(texts, "SELECT json_type(value) = 'OBJECT' FROM documents")
        positions, key = pc.indices_nonzero(objects).cast(pa.int64()), self.columns.key
        found = [pa.nulls(len(texts), one.type.arrow) for one in key.fields if isinstance(one.type, Primitive)]
        bare = Payloads(positions, texts.take(positions), None)
        for part in (bare, *opened(bare.texts.to_pylist(), positions.to_pylist())):
            parts = _parts("", key, part.types)
            _, columns, _ = self._open(part.texts, parts)
            read = map(self._column, parts, columns)
            found = [replaced(old, part.positions, new.values) for old, new in zip(found, read, strict=True)]
        return tuple(found)

    def explain(self, values: pa.Array) -> list[list[Found]]:
        """For each of a few malformed documents, the values that do not fit."""
        alone = replace(self, unknown=None)  # a second reading must not count unknown keys again
        keeping = replace(alone, keeps_placeholders=True)
        documents = values.cast(pa.binary())
        return [alone.why_not(documents.slice(at, 1), keeping) for at in range(len(documents))]

    def why_not(self, document: pa.Array, keeping: "JsonEvents") -> list[Found]:
        """The values of one malformed document that do not fit."""
        row, found = envelopes.wrong_columns(self.events(document), self.columns)
        wrong = [one for one, _ in found]
        still = [one for one, _ in envelopes.wrong_columns(keeping.events(document), self.columns)[1]]
        held = [unavailable(one) for one in wrong if one not in still]
        why = held or explained(document[0].as_py(), row, wrong, self._reader)
        if why != [UNKNOWN_MISFIT] or not self.forgives:
            return why
        [strictly] = replace(self, forgives=False).explain(document)
        held = [one for one in strictly if one.kind == HELD]
        return held or [IN_REST if is_placeholder(document[0].as_py().decode()) else REST_TOO_LARGE]

    def texts(self, row: str, values: pa.Array, without: Collection[str] = ()) -> Iterator[str]:  # noqa: ARG002 - as they are
        """See `envelopes.EventReader`: as it is written, but decimals with their digits if a schema tells them."""
        for value in values.cast(pa.binary()).to_pylist():
            types: Types = None
            operation, text = first_members(value.decode(), (envelopes.OPERATION, row))
            if operation in (None, "null"):
                [part] = opened([value.decode()], [0])
                types, [text] = part.types, first_members(part.texts[0].as_py(), (row,))
            text = text or "null"
            yield text if types is None else with_digits(text, ConnectType("struct", fields=types))

    def _read(self, part: Payloads) -> envelopes.Events:
        empty = pc.fill_null(pc.equal(part.texts, "null"), FALSE)
        after = _parts(envelopes.AFTER, self.columns.after, part.types)
        before = _parts(envelopes.BEFORE, self.columns.before, part.types)
        whole = [_Part("", Field(0, row, required=False, type=Struct(()))) for row in self.columns.stored if self.finds]
        parts = [_Part("", _OPERATION), *after, *before, *whole]
        texts, [operations, *columns], unreadable = self._open(part.texts, parts)
        columns, rows = columns[: len(after) + len(before)], columns[len(after) + len(before) :]
        read = [self._column(*one) for one in zip((*after, *before), columns, strict=True)]
        rows_before = tuple(read[len(after) :])
        of_rows = {envelopes.AFTER: columns[: len(after)], envelopes.BEFORE: columns[len(after) :]}
        rests = [
            self._reader.with_unknown_keys(row, of_rows[name], self.columns.stored[name])
            for name, row in zip(self.columns.stored, rows, strict=False)
        ]
        if self.unknown is not None:
            _, [rows], _ = self._reader.find(texts[:SEARCHED], _ROWS_AFTER)
            self._reader.count_unknown(rows, self.columns.after)
        return envelopes.Events(
            operations,
            empty,
            pc.and_not(unreadable, empty),
            self._has_before(texts, operations, rows_before),
            tuple(read[: len(after)]),
            rows_before,
            reduce(either, (one.rest for one in read), reduce(either, rests, None)),
        )

    def _open(self, texts: pa.Array, parts: Sequence[_Part]) -> tuple[pa.Array, list[pa.Array], pa.BooleanArray]:
        """The parts of documents; returns the documents too, NULL if they are no objects, and True for those."""
        wrong = other_than(texts, "{")
        texts = texts if wrong is None else without(texts, wrong)
        texts, columns, invalid = self._reader.find(texts, members_query((part.path, part.is_json) for part in parts))
        positions = respelled(texts, self.columns.after)
        if positions is not None:
            columns = with_spelling(columns, texts, positions, _as_written(parts))
        wrong = either(wrong, invalid)
        return texts, columns, pa.repeat(pa.scalar(value=False), len(texts)) if wrong is None else wrong

    def _column(self, part: _Part, texts: pa.Array) -> Parsed:
        """The values of a part, with NULL for misfits."""
        kind, encoded = part.field.type, part.encoded
        if part.conversion is not None:
            found = converted(texts, part.conversion.convert, part.conversion.likely)
        elif encoded is not None:
            written = converted(texts, partial(spelled_out, written=encoded, kind=kind, encoding=self.encoding))
            found = self._of_bytes.read(written.values, kind, (part.field.name,))
            found = replace(found, misfits=either(found.misfits, written.misfits))
        else:
            found = self._reader.read(texts, kind, (part.field.name,))
        if found.misfits is not None:
            forgives = self.forgives and part.field.forgives
            found = forgiven(found) if forgives else replace(found, values=without(found.values, found.misfits))
        return found if self.keeps_placeholders else available(found)

    def _has_before(self, texts: pa.Array, operations: pa.Array, before: Sequence[Parsed]) -> pa.BooleanArray:
        """True for events with a row before; the keys in it usually tell."""
        pairs = zip(self.columns.before.fields, before, strict=True)
        found = reduce(pc.or_, (parsed.values.is_valid() for one, parsed in pairs if one.name in self.columns.keys))
        unclear = pc.and_(
            pc.equal(operations, envelopes.UPDATE), pc.and_not(pc.invert(pc.starts_with(texts, _NO_ROW_BEFORE)), found)
        )
        positions = pc.indices_nonzero(unclear)
        if not len(positions):
            return found
        _, [more], _ = self._reader.find(texts.take(positions), _ROWS_BEFORE)
        return replaced(found, positions, more)


def _parts(row: str, struct: Struct, types: Types) -> list[_Part]:
    return [
        _Part(row, one, conversion_of(one.type, one.name, types), with_bytes(one.type, one.name, types))
        for one in struct.fields
    ]


def _as_written(parts: Sequence[_Part]) -> Callable[[str], list[str | None]]:
    """A function from a document to its parts in their original spelling."""

    def parts_of(text: str) -> list[str | None]:
        after, before = first_members(text, (envelopes.AFTER, envelopes.BEFORE))
        rows = {"": text.lstrip(), envelopes.AFTER: after or "", envelopes.BEFORE: before or ""}
        found = {row: dict(reversed(members(part))) for row, part in rows.items() if part.startswith("{")}
        return [as_taken(found.get(part.row, {}).get(part.field.name), as_json=part.is_json) for part in parts]

    return parts_of


def explained(value: bytes | None, row: str, wrong: Sequence[Field], reader: JsonReader) -> list[Found]:
    """Descriptions for a document of which a row is wrong in some columns."""
    whole = text_in(value)
    if isinstance(whole, Found):
        return [whole]
    wrapped = opened([whole], [0])
    text, types = (wrapped[0].texts[0].as_py(), wrapped[0].types) if wrapped else (whole, None)
    event = parsed(text)
    found = _in_row(text, row, event.get(row), wrong, types, reader) if isinstance(event, Object) and wrong else []
    return list(dict.fromkeys(found)) or [UNKNOWN_MISFIT]


def _in_row(text: str, name: str, row: object, wrong: Sequence[Field], types: Types, reader: JsonReader) -> list[Found]:
    if not isinstance(row, Object):
        return [Found(kind_in_words(row), as_written(row), name, OBJECT)]
    found: list[Found] = []
    written = first_members(text, (name,))[0] or ""
    for one, raw in zip(wrong, first_members(written, [one.name for one in wrong]), strict=True):
        value = row.get(one.name, ABSENT)
        if is_placeholder(raw or ""):
            found.append(unavailable(one))
        elif isinstance(one.type, Primitive):
            found.append(with_option(_of_value(value, one, types), one.type, reader.encoding))
        elif with_bytes(one.type, one.name, types) is not None:
            found.append(Found(kind_in_words(value), as_written(value), one.name, sql_type_of(one.type)))
        else:
            found += reader.explain(pa.array([written.encode()]), Struct((one,)))[0]
    return found


def _of_value(value: object, column: Field, types: Types) -> Found:
    expected = sql_type_of(column.type)
    known = None if types is None else types.get(column.name)
    kind = kind_in_words(value) + (f" ({known.name or known.type})" if known is not None else "")
    name = column.type.name if isinstance(column.type, Primitive) else ""
    if types is None and name in _WITHOUT_UNIT and isinstance(value, Number):
        expected += " as text (time.precision.mode=isostring), or a schema (schemas.enable=true)"
    return Found(kind, as_written(value), column.name, expected)
