"""Counts keys without a column, in some documents of every gathered batch.

Listing the keys of all documents would cost at least a third of decoding them. A new key also appears in the first
documents.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakesink.decode.misfits import Path, dotted
from lakesink_protocol.decoded import MOST_NAMES, first_names

LOOKED_AT = 1_000
"""Documents, or objects inside them, that are searched at one level of a gathered batch."""
_NAMES_KEPT = 1_000


@dataclass(slots=True)
class UnknownKeys:
    """Keys without a column in a task's searched documents; `count` is the number of their values other than null."""

    count: int = 0
    _names: set[str] = field(default_factory=set)

    @property
    def names(self) -> tuple[str, ...]:
        """The first of their names."""
        return first_names(self._names)

    def saw(self, path: Path, found: Iterable[tuple[str, int]]) -> None:
        """Add the keys and their counts at one level of the documents."""
        for name, times in found:
            self.count += times
            self._names.add(dotted((*path, name)))
        if len(self._names) > _NAMES_KEPT:
            self._names = set(sorted(self._names)[:MOST_NAMES])
