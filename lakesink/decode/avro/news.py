"""Finds what Avro messages bring that a table's columns cannot hold.

New columns and wider types follow from the writer's schema, as they follow from the types of a DataFrame: every message
of this schema has them. Only a required column becomes optional because of a value, a NULL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.kinds import news_of
from lakesink.decode.avro.messages import MessageReader
from lakesink.decode.json_scalars import Parsed, either
from lakesink.decode.kinds import Place
from lakesink.decode.news import News, NewsFinder
from lakesink.decode.news_rows import hopeful
from lakesink.decode.widest import widest
from lakesink.writer.nested import as_list
from lakesink.writer.plan import NewsPlan
from lakesink.writer.schema import ListOf, MapOf, Primitive, Struct, Type

Lacking = dict[int, set[Place]]
"""Required columns without a value, by the position of the message."""


@dataclass(slots=True)
class AvroNews:
    """The news of Avro messages."""

    plan: NewsPlan
    struct: Struct
    reader: MessageReader
    _by_schema: dict[int, News] = field(default_factory=dict)
    _keys: NewsFinder = field(init=False)

    def __post_init__(self) -> None:
        self._keys = NewsFinder(self.struct, widens=False)

    def found(self, messages: pa.Array, parsed: Parsed) -> Iterator[tuple[Sequence[int], News]]:
        """See `FindsNews`."""
        readable = np.ones(len(messages), np.bool_)
        lacking: Lacking = {}
        if parsed.misfits is not None:
            readable &= ~parsed.misfits.to_numpy(zero_copy_only=False)
        if self.plan.widens and not self.plan.is_last:
            self._add_lacking(lacking, parsed.values, range(len(messages)))
            doubtful = either(parsed.misfits, parsed.rest)  # a rescue column forgives a struct that lacks a value
            if doubtful is not None:
                at, rows = hopeful(messages, doubtful, self.reader.documents, widest(self.struct, self.plan))
                self._add_lacking(lacking, rows, at.to_pylist())
                readable[at.to_numpy(zero_copy_only=False)] = True
        numbers = self.reader.schema_ids(messages)
        for number in np.unique(numbers[readable]).tolist():
            news = self._news_of(number)
            if not (news.added or news.widened or lacking):
                continue
            rows = np.flatnonzero(readable & (numbers == number)).tolist()
            if self.plan.is_last:
                yield from self._without_column(news, rows, messages)
            else:
                yield from _of_schema(news, rows, lacking)

    def _without_column(self, news: News, rows: list[int], messages: pa.Array) -> Iterator[tuple[Sequence[int], News]]:
        """The fields that get no column, where they have a value."""
        fields = news.added
        if fields:
            texts = self.reader.texts(messages.take(pa.array(rows)))
            for row, text in zip(rows, texts, strict=True):
                yield [row], News({place: fields[place] for place in self._keys.of(text).added if place in fields})

    def _news_of(self, number: int) -> News:
        if number not in self._by_schema:
            schema = self.reader.schema(number)
            assert schema is not None
            self._by_schema[number] = news_of(schema, self.struct, self.plan)
        return self._by_schema[number]

    def _add_lacking(self, lacking: Lacking, rows: pa.StructArray, positions: Sequence[int]) -> None:
        for place, found in _lacking(rows, self.struct, (), self.plan.kept_required):
            for row in found.unique().to_pylist():
                lacking.setdefault(positions[row], set()).add(place)


def _of_schema(news: News, rows: list[int], lacking: Lacking) -> Iterator[tuple[Sequence[int], News]]:
    """The news of the schema, and of the messages that lack a value."""
    some = lacking.keys() & rows
    if news.added or news.widened:
        yield [row for row in rows if row not in some], _copy(news)
    for row in some:
        yield [row], replace(_copy(news), optional=lacking[row])


def _copy(news: News) -> News:
    return News(dict(news.added), dict(news.widened))


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
            yield from _lacking_in(values, element.type, (*place, "element"), kept)
        case MapOf(_, value) if not isinstance(value.type, Primitive):
            pairs = as_list(values)
            holders = pc.list_parent_indices(pairs)
            for where, found in _lacking(pairs.flatten().field(1), value.type, (*place, "value"), kept):
                yield where, holders.take(found)


def _lacking_in(lists: pa.Array, kind: Type, place: Place, kept: frozenset[int]) -> Iterator[tuple[Place, pa.Array]]:
    holders = pc.list_parent_indices(lists)
    for where, found in _lacking(lists.flatten(), kind, place, kept):
        yield where, holders.take(found)
