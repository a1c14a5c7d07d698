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


class FindsObjects(Protocol):
    """Tells objects from other documents."""

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
    reader: FindsObjects
    news: News = field(init=False)
    _refused: frozenset[Place] = field(init=False)
    _finder: NewsFinder = field(init=False)

    def __post_init__(self) -> None:
        self.news = News(self.plan.most)
        self._refused = frozenset(self.plan.refused)
        self._finder = NewsFinder(self.struct, self.plan.most, self.plan.widens)

    def found(self, documents: pa.Array, parsed: Parsed) -> FoundNews:
        """The documents with news among those that the reader marked, or could not read."""
        doubtful = either(parsed.rest, parsed.misfits if self.plan.widens else None)
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
        return FoundNews(_mask(left, len(documents)) if left else None, refused)

    def _taken_out(self, news: News) -> set[Place]:
        """Take the keys for which no column can be added out of the news."""
        some = set(news.added) if self.plan.is_last else news.added.keys() & self._refused
        return {place for place in some if not says_nothing(news.added.pop(place))}


def _mask(positions: list[int], length: int) -> pa.BooleanArray:
    found = set(positions)
    return pa.array([position in found for position in range(length)], pa.bool_())
