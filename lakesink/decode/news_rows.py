"""Finds the documents of a batch that its columns cannot hold, and decides what a task does with each of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_scalars import Parsed
from lakesink.decode.misfits import dotted
from lakesink.decode.news import News, NewsFinder, widest
from lakesink.decode.value_kinds import Place, says_nothing
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import Struct
from lakesink.rows.unfit import all_but


class FindsNews(Protocol):
    """Finds the news of documents of one format."""

    def found(self, documents: pa.Array, parsed: Parsed) -> Iterator[tuple[Sequence[int], News]]:
        """Positions of documents, and the news that each of them has; no position comes twice.

        Documents that are malformed under any schema that could follow have none. The caller may change the news.
        """


@dataclass(frozen=True, slots=True)
class FoundNews:
    """The documents of one batch with news.

    Attributes:
        left: True for those that must wait for the votes of all tasks; None if there are none.
        refused: For others, a key that cannot become a column, by the document's position.
    """

    left: pa.BooleanArray | None = None
    refused: Mapping[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class NewsRows:
    """The news of one task's documents.

    Attributes:
        leaves_all: True if there are no columns yet, so that no document can be written.
    """

    plan: NewsPlan
    finder: FindsNews
    leaves_all: bool = False
    news: News = field(default_factory=News)
    _refused: frozenset[Place] = field(init=False)

    def __post_init__(self) -> None:
        self._refused = frozenset(self.plan.refused)

    def found(self, documents: pa.Array, parsed: Parsed) -> FoundNews:
        """The documents with news, of those that are read or can be under another schema."""
        left: list[int] = []
        refused: dict[int, str] = {}
        for positions, news in self.finder.found(documents, parsed):
            # No column can be added for these keys: they are no news.
            some = set(news.added) if self.plan.is_last else news.added.keys() & self._refused
            without_column = {place for place in some if not says_nothing(news.added.pop(place))}
            if news and not self.plan.is_last:
                self.news.include(news)
                left.extend(positions)
            elif without_column:
                refused.update(dict.fromkeys(positions, dotted(min(without_column))))
        if self.leaves_all:
            every = pa.repeat(pa.scalar(value=True), len(documents))
            return FoundNews(every if parsed.misfits is None else pc.invert(parsed.misfits), refused)
        return FoundNews(pc.invert(all_but(len(documents), left)) if left else None, refused)


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


class ReadsObjects(Protocol):
    """Reads JSON documents."""

    def documents(self, values: pa.Array, kind: Struct) -> Parsed:
        """A table's columns from documents."""

    def objects(self, values: pa.Array) -> pa.BooleanArray:
        """True for documents that are objects."""


@dataclass(slots=True)
class JsonNews:
    """The news of JSON documents: only those are looked at that the reader marked, or could not read."""

    plan: NewsPlan
    struct: Struct
    reader: ReadsObjects
    finder: NewsFinder = field(init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self.finder = NewsFinder(self.struct, plan.widens, plan.kept_types, plan.kept_required)

    def found(self, documents: pa.Array, parsed: Parsed) -> Iterator[tuple[Sequence[int], News]]:
        """See `FindsNews`."""
        positions = self._doubtful(documents, parsed)
        if not len(positions):
            return
        texts = documents.take(positions).cast(pa.binary()).to_pylist()
        for position, text in zip(positions.to_pylist(), texts, strict=True):
            yield [position], self.news_of(text.decode())

    def news_of(self, document: str) -> News:
        """The news of one document."""
        return self.finder.of(document)

    def _doubtful(self, documents: pa.Array, parsed: Parsed) -> pa.Array:
        """Positions of the documents that may have news."""
        rest, misfits = parsed.rest, parsed.misfits
        if rest is not None and misfits is not None:
            rest = pc.and_not(rest, misfits)
        marked = pa.array([], pa.uint64()) if rest is None else pc.indices_nonzero(rest)
        if misfits is None or not self.plan.widens or self.plan.is_last:
            return marked
        unread, _ = hopeful(documents, misfits, self.reader.documents, widest(self.struct, self.plan))
        return pa.concat_arrays([marked, unread])
