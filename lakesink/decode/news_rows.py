"""Finds the documents of a batch that its columns cannot hold, and decides what a task does with each of them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_scalars import Parsed, but
from lakesink.decode.misfits import dotted
from lakesink.decode.news import News, NewsFinder, widest
from lakesink.decode.value_kinds import says_nothing
from lakesink.rows.plan import NewsPlan
from lakesink.rows.scalars import TRUE
from lakesink.rows.schema import Struct
from lakesink.rows.unfit import all_but

Find = Callable[[pa.Array, Parsed], Iterator[tuple[Sequence[int], News]]]
"""Finds positions of documents, and the news that each of them has; no position comes twice.

Documents that are malformed under any schema that could follow have none. The caller may change the news.
"""


class ReadsDocuments(Protocol):
    """Reads documents of one format for one task."""

    def documents(self, values: pa.Array, kind: Struct) -> Parsed:
        """A table's columns from documents, one row for each document."""

    def texts(self, values: pa.Array, without: Collection[str] = ()) -> Iterable[str]:
        """Documents as JSON; the members of some names may be left out. `documents` has accepted the documents."""


@dataclass(slots=True)
class NewsRows:
    """The news of one task's documents.

    Attributes:
        leaves_all: True if there are no columns yet, so that no document can be written.
    """

    plan: NewsPlan
    find: Find
    leaves_all: bool = False
    news: News = field(default_factory=News)

    def found(self, documents: pa.Array, parsed: Parsed) -> tuple[pa.BooleanArray | None, Mapping[int, str]]:
        """Of documents with news: True for those that must wait for the votes of all tasks; None if there are none.

        For others, by position, a key that cannot become a column.
        """
        left: list[int] = []
        refused: dict[int, str] = {}
        for positions, news in self.find(documents, parsed):
            # No column can be added for these keys: they are no news.
            some = set(news.added) if self.plan.is_last else news.added.keys() & set(self.plan.refused)
            without_column = {place for place in some if not says_nothing(news.added.pop(place))}
            if news and not self.plan.is_last:
                self.news.include(news)
                left.extend(positions)
            elif without_column:
                refused.update(dict.fromkeys(positions, dotted(min(without_column))))
        if self.leaves_all:
            return but(pa.repeat(TRUE, len(documents)), parsed.misfits), refused
        return pc.invert(all_but(len(documents), left)) if left else None, refused


def hopeful(
    documents: pa.Array, misfits: pa.BooleanArray, read: Callable[[pa.Array, Struct], Parsed], widest: Struct
) -> tuple[pa.Array, pa.Array]:
    """Positions of the misfits that fit the widest columns, and their rows."""
    positions = pc.indices_nonzero(misfits)
    parsed = read(documents.take(positions), widest)
    if parsed.misfits is None:
        return positions, parsed.values
    fits = pc.invert(parsed.misfits)
    return positions.filter(fits), parsed.values.filter(fits)


@dataclass(slots=True)
class JsonNews:
    """The news of JSON documents: only those are looked at that the reader marked, or could not read."""

    plan: NewsPlan
    struct: Struct
    reader: ReadsDocuments
    finder: NewsFinder = field(init=False)

    def __post_init__(self) -> None:
        self.finder = NewsFinder(self.struct, self.plan)

    def found(self, documents: pa.Array, parsed: Parsed) -> Iterator[tuple[Sequence[int], News]]:
        """See `Find`."""
        rest = but(parsed.rest, parsed.misfits)
        positions = pa.array([], pa.uint64()) if rest is None else pc.indices_nonzero(rest)
        if parsed.misfits is not None and self.plan.widens and not self.plan.is_last:
            wide = widest(self.struct, self.plan)
            unread, _ = hopeful(documents, parsed.misfits, self.reader.documents, wide)
            positions = pa.concat_arrays([positions, unread])
        texts = documents.take(positions).cast(pa.binary()).to_pylist()
        for position, text in zip(positions.to_pylist(), texts, strict=True):
            yield [position], self.news_of(text.decode())

    def news_of(self, document: str) -> News:
        """The news of one document."""
        return self.finder.of(document)
