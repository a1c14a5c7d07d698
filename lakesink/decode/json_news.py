"""Finds the JSON documents of a batch that have news."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_scalars import Parsed
from lakesink.decode.json_values import JsonReader
from lakesink.decode.news import News, NewsFinder, widest
from lakesink.decode.news_rows import hopeful
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import Struct


@dataclass(slots=True)
class JsonNews:
    """The news of JSON documents: only those are looked at that the reader marked, or could not read."""

    plan: NewsPlan
    struct: Struct
    reader: JsonReader
    _finder: NewsFinder = field(init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self._finder = NewsFinder(self.struct, plan.widens, plan.kept_types, plan.kept_required)

    def found(self, documents: pa.Array, parsed: Parsed) -> Iterator[tuple[Sequence[int], News]]:
        """See `FindsNews`."""
        positions = self._doubtful(documents, parsed)
        if not len(positions):
            return
        chosen = documents.take(positions)
        objects = self.reader.objects(chosen)
        texts = chosen.filter(objects).cast(pa.binary()).to_pylist()
        for position, text in zip(positions.filter(objects).to_pylist(), texts, strict=True):
            yield [position], self._finder.of(text.decode())

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
