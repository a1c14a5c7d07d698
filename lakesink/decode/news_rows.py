"""Finds the documents of a batch that its columns cannot hold, and decides what a task does with each of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_scalars import Parsed, either
from lakesink.decode.kinds import Place, says_nothing
from lakesink.decode.misfits import dotted
from lakesink.decode.news import News, NewsFinder
from lakesink.writer.plan import NewsPlan
from lakesink.writer.schema import Struct
from lakesink.writer.unfit import all_but


class ReadsObjects(Protocol):
    """Reads documents, and tells objects from others."""

    def documents(self, values: pa.Array, kind: Struct) -> Parsed:
        """A table's columns from documents."""

    def objects(self, values: pa.Array) -> pa.BooleanArray:
        """True for documents that are objects."""


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
    """The news of one task's documents."""

    plan: NewsPlan
    struct: Struct
    reader: ReadsObjects
    news: News = field(init=False)
    _refused: frozenset[Place] = field(init=False)
    _finder: NewsFinder = field(init=False)

    def __post_init__(self) -> None:
        self.news = News()
        self._refused = frozenset(self.plan.refused)
        plan = self.plan
        self._finder = NewsFinder(self.struct, plan.widens, plan.kept_types, plan.kept_required)

    def found(self, documents: pa.Array, parsed: Parsed) -> FoundNews:
        """The documents with news among those that the reader marked, or could not read."""
        doubtful = self._doubtful(documents, parsed)
        if doubtful is None:
            return FoundNews()
        positions = pc.indices_nonzero(doubtful)
        chosen = documents.take(positions)
        objects = self.reader.objects(chosen)
        texts = chosen.filter(objects).cast(pa.binary()).to_pylist()
        left, refused = [], {}
        for position, text in zip(positions.filter(objects).to_pylist(), texts, strict=True):
            news = self._finder.of(text.decode())
            without_column = self._taken_out(news)
            if news and not self.plan.is_last:
                self.news.include(news)
                left.append(position)
            elif without_column:
                refused[position] = dotted(min(without_column))
        return FoundNews(pc.invert(all_but(len(documents), left)) if left else None, refused)

    def _doubtful(self, documents: pa.Array, parsed: Parsed) -> pa.BooleanArray | None:
        """Documents that may have news: not those that are malformed under any schema that could follow."""
        misfits = parsed.misfits
        if misfits is None:
            return parsed.rest
        rest = None if parsed.rest is None else pc.and_not(parsed.rest, misfits)
        if not self.plan.widens or self.plan.is_last:
            return rest
        widest = self._finder.widest(self.struct)
        assert isinstance(widest, Struct)
        hopeless = self.reader.documents(pc.if_else(misfits, documents, b"{}"), widest).misfits
        return either(rest, misfits if hopeless is None else pc.and_not(misfits, hopeless))

    def _taken_out(self, news: News) -> set[Place]:
        """Take the keys for which no column can be added out of the news."""
        some = set(news.added) if self.plan.is_last else news.added.keys() & self._refused
        return {place for place in some if not says_nothing(news.added.pop(place))}
