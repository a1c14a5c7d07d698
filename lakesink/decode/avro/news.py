"""Finds what Avro messages bring that a table's columns cannot hold.

New columns and wider types follow from the writer's schema, as they follow from the types of a DataFrame: every message
of this schema has them. A required column becomes optional because of a value, a NULL; and a field that can get no
column counts only where it has a value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.kinds import news_of, typed_fields
from lakesink.decode.avro.schema import WriterSchema
from lakesink.decode.json_scalars import Parsed, but, either
from lakesink.decode.news import News, NewsFinder, relaxed
from lakesink.decode.news_rows import ReadsDocuments, hopeful
from lakesink.decode.value_kinds import Kind, Place, says_nothing
from lakesink.rows.nested import as_list
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import ListOf, MapOf, Primitive, Struct, Type
from lakesink.rows.unfit import all_but

Lacking = dict[int, set[Place]]
"""Required columns without a value, by the position of the message."""


@dataclass(frozen=True, slots=True)
class _Schema:
    """One writer's schema: new fields without parts that get no column, and the columns after the changes it brings."""

    news: News
    typed: Mapping[Place, Kind]
    columns: Struct

    @classmethod
    def of(cls, schema: WriterSchema, struct: Struct, plan: NewsPlan) -> "_Schema":
        news = news_of(schema, struct, plan)
        wide = {place: Primitive(name) for place, name in news.widened.items()}
        return cls(news, typed_fields(news.added, {}), relaxed(struct, plan, lambda kind, place: wide.get(place, kind)))


class ReadsBySchema(ReadsDocuments, Protocol):
    """Reads documents whose types their schemas tell. NULL that is no misfit is a document without a row."""

    def by_schema(self, values: pa.Array) -> Iterator[tuple[int, WriterSchema, pa.BooleanArray]]:
        """The schemas of the documents, each with a number of its own, and True for the documents it has written."""

    def forgiving(self) -> "ReadsBySchema":
        """The same reader, which forgives."""


@dataclass(slots=True)
class AvroNews:
    """The news of Avro messages, and of other documents with schemas."""

    plan: NewsPlan
    struct: Struct
    reader: ReadsBySchema
    _schemas: dict[int, "_Schema"] = field(default_factory=dict, init=False)
    _keys: NewsFinder = field(init=False)

    def __post_init__(self) -> None:
        self._keys = NewsFinder(self.struct, NewsPlan(widens=False))

    def found(self, messages: pa.Array, parsed: Parsed) -> Iterator[tuple[Sequence[int], News]]:
        """See `lakesink.decode.news_rows.Find`."""
        present = but(parsed.values.is_valid(), parsed.misfits)
        # A rescue column forgives a struct that lacks a required value, so those messages are in doubt too.
        doubtful = either(parsed.misfits, parsed.rest)
        for number, writer, written in self.reader.by_schema(messages):
            if number not in self._schemas:
                self._schemas[number] = _Schema.of(writer, self.struct, self.plan)
            schema, lacking = self._schemas[number], Lacking()
            readable = pc.and_(written, present)
            follows = self.plan.widens and not self.plan.is_last and doubtful is not None
            if follows and (some := pc.and_(written, doubtful)).true_count:
                at, rows = hopeful(messages, some, self.reader.documents, schema.columns)
                readable = pc.or_(readable, pc.invert(all_but(len(messages), at.to_pylist())))
                for place, lack in _lacking(rows, self.struct, (), self.plan.kept_required):
                    for position in at.take(lack.unique()).to_pylist():
                        lacking.setdefault(position, set()).add(place)
            if schema.news.added or schema.news.widened or lacking:
                yield from self._of_schema(schema, pc.indices_nonzero(readable), lacking, messages)

    def _of_schema(
        self, schema: "_Schema", rows: pa.Array, lacking: Lacking, messages: pa.Array
    ) -> Iterator[tuple[Sequence[int], News]]:
        """The news of the schema, and of messages that lack a value, or have one that can get no column."""
        alone = dict.fromkeys(lacking, schema.typed) | self._by_value(schema, rows, messages)
        others = [row for row in rows.to_pylist() if row not in alone]
        if others and not self.plan.is_last:
            yield others, News(dict(schema.typed), dict(schema.news.widened))
        for row, added in alone.items():
            yield [row], News(dict(added), dict(schema.news.widened), lacking.get(row, set()))

    def _by_value(self, schema: "_Schema", rows: pa.Array, messages: pa.Array) -> dict[int, Mapping[Place, Kind]]:
        """Messages with a value that can get no column, and their new fields."""
        fields = schema.news.added
        if not fields or (schema.typed == fields and not self.plan.is_last):
            return {}
        some = messages.take(rows)
        rest = self.reader.forgiving().documents(some, schema.columns).rest
        if rest is None:
            return {}
        found: dict[int, Mapping[Place, Kind]] = {}
        for row, text in zip(rows.filter(rest).to_pylist(), self.reader.texts(some.filter(rest)), strict=True):
            seen = self._keys.of(text).added
            if self.plan.is_last:
                values = {place for place, kind in seen.items() if not says_nothing(kind)}
                found[row] = {place: fields[place] for place in fields.keys() & values}
            else:
                found[row] = typed_fields(fields, seen)
        of_others = {} if self.plan.is_last else schema.typed
        return {row: added for row, added in found.items() if added != of_others}


def _lacking(values: pa.Array, kind: Type, place: Place, kept: frozenset[int]) -> Iterator[tuple[Place, pa.Array]]:
    """Places of required fields that have no value, with the positions of the values that lack them."""
    match kind:
        case Struct(fields):
            for at, one in enumerate(fields):
                below, where = values.field(at), (*place, one.name)
                if one.required and one.field_id not in kept and below.null_count:
                    nulls = pc.and_(below.is_null(), values.is_valid())
                    if nulls.true_count:
                        yield where, pc.indices_nonzero(nulls)
                if not isinstance(one.type, Primitive):
                    yield from _lacking(below, one.type, where, kept)
        case ListOf(element) if not isinstance(element.type, Primitive):
            holders = pc.list_parent_indices(values)
            for where, found in _lacking(values.flatten(), element.type, (*place, "element"), kept):
                yield where, holders.take(found)
        case MapOf(_, value) if not isinstance(value.type, Primitive):
            pairs = as_list(values)
            holders = pc.list_parent_indices(pairs)
            for where, found in _lacking(pairs.flatten().field(1), value.type, (*place, "value"), kept):
                yield where, holders.take(found)
