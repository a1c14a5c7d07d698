"""Members of documents that the table has no column for, looked for in some documents of every gathered batch.

To list the keys of all documents costs a third of decoding them and more. A key that writers have begun to send is in
the first documents too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakesink.decode.misfits import Path, dotted
from lakesink_protocol.decoded import MOST_NAMES, first_names

LOOKED_AT = 1_000
"""Documents, or objects within them, of one level of a gathered batch."""
_NAMES_KEPT = 1_000


@dataclass(slots=True)
class UnknownKeys:
    """What one task's documents have and the table has not.

    Attributes:
        count: Members with another value than null, of the documents that were looked at.
    """

    count: int = 0
    _names: set[str] = field(default_factory=set)

    @property
    def names(self) -> tuple[str, ...]:
        """The first of their names."""
        return first_names(self._names)

    def saw(self, path: Path, found: Iterable[tuple[str, int]]) -> None:
        """Keys were there so many times each, at a level of the documents."""
        for name, times in found:
            self.count += times
            self._names.add(dotted((*path, name)))
        if len(self._names) > _NAMES_KEPT:
            self._names = set(sorted(self._names)[:MOST_NAMES])
