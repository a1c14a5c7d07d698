"""Counts keys without a column, in the first documents of every merged batch.

Listing the keys of all documents would take at least a third of the time for decoding. The first documents show a new
key as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakesink.decode.misfits import Path, dotted
from lakesink_protocol.quality import MOST_NAMES, first_names

SEARCHED = 1_000
"""Documents, or objects inside them, that are searched at one level of a merged batch."""
_NAMES_KEPT = 1_000


@dataclass(slots=True)
class UnknownKeys:
    """Keys without a column in a task's searched documents; `count` is the number of their values other than null."""

    count: int = field(default=0, init=False)
    _names: set[str] = field(default_factory=set, init=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The first names, in alphabetical order."""
        return first_names(self._names)

    def add(self, path: Path, found: Iterable[tuple[str, int]]) -> None:
        """Add the keys and their counts at one level of the documents."""
        for name, times in found:
            self.count += times
            self._names.add(dotted((*path, name)))
        if len(self._names) > _NAMES_KEPT:
            self._names = set(sorted(self._names)[:MOST_NAMES])
