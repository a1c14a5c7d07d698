"""Finds what rows of events bring that a table's columns cannot hold.

The types of new columns follow from the schema of an event: Avro's, or Kafka Connect's in a wrapper. Only those of bare
JSON follow from values. A delete brings no column if its row is not stored, but its key may need a wider one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa

from lakesink.decode.avro.news import AvroNews
from lakesink.decode.avro.schema import WriterSchema
from lakesink.decode.debezium.envelopes import AFTER, BEFORE, EventColumns, EventReader
from lakesink.decode.debezium.sorting import sort_events, stored_rows
from lakesink.decode.json_raw import first_members
from lakesink.decode.json_scalars import Parsed, but, either
from lakesink.decode.news import News
from lakesink.decode.news_rows import JsonNews
from lakesink.rows.schema import Struct


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Reads the rows that a table gets as documents of their own; see `lakesink.decode.avro.news.ReadsBySchema`."""

    reader: EventReader
    columns_of: Callable[[Struct], EventColumns]
    forgives: bool = False

    def documents(self, values: pa.Array, kind: Struct) -> Parsed:
        """The rows; a delete that is not stored has none, and is a misfit if its key does not fit."""
        columns = self.columns_of(kind)
        events = self.reader.reading(columns, forgives=self.forgives).events(values)
        return stored_rows(events, sort_events(events, columns), columns)

    def texts(self, values: pa.Array, without: Collection[str] = ()) -> Iterable[str]:
        """The rows as JSON."""
        rows = (self.reader.texts(row, values, without) for row in (AFTER, BEFORE))
        return (before if after == "null" else after for after, before in zip(*rows, strict=True))

    def by_schema(self, values: pa.Array) -> Iterator[tuple[int, WriterSchema, pa.BooleanArray]]:
        """The schemas of the rows."""
        return self.reader.by_schema(values)

    def forgiving(self) -> "StoredRows":
        """The same reader, which forgives."""
        return StoredRows(self.reader, self.columns_of, forgives=True)


@dataclass(slots=True)
class RowNews(JsonNews):
    """The news of rows of events as JSON, in wrappers with a schema or bare."""

    reader: StoredRows
    _by_schema: AvroNews = field(init=False)

    def __post_init__(self) -> None:
        JsonNews.__post_init__(self)
        self._by_schema = AvroNews(self.plan, self.struct, self.reader)

    def found(self, documents: pa.Array, parsed: Parsed) -> Iterator[tuple[Sequence[int], News]]:
        """See `lakesink.decode.news_rows.Find`."""
        yield from self._by_schema.found(documents, parsed)
        wrapped = reduce(either, (written for _, _, written in self.reader.by_schema(documents)), None)
        bare = Parsed(parsed.values, but(parsed.misfits, wrapped), but(parsed.rest, wrapped))
        yield from JsonNews.found(self, documents, bare)

    def news_of(self, document: str) -> News:
        """The news of the row that is stored, and of the key before the change."""
        columns = self.reader.columns_of(self.struct)
        after, before = (row or "" for row in first_members(document, (AFTER, BEFORE)))
        has_row, had_row = after.startswith("{"), before.startswith("{")
        found = self.finder.of(after) if has_row else News()
        if had_row and columns.keeps_deleted and not has_row:
            return self.finder.of(before)
        if had_row:
            wide = self.finder.of(before).widened.items()
            found.include(News(widened={place: name for place, name in wide if place[0] in columns.of_delete}))
        return found
