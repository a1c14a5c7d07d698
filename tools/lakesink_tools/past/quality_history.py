"""The quality history of a table: of every check, what each batch says in its snapshot's summary. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from lakesink_catalog.read.past import PastCommit
from lakesink_tools.past.records import record_of

_OWN = UNKNOWN_KEYS, DEAD_LETTERS, RESCUED = "unknown keys", "dead letters", "rescued rows"
"""Checks that lakesink makes by itself. The others have the names of expectations, which have no blank."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One check of one batch."""

    batch_id: int
    rows: int
    found: int


@dataclass(slots=True)
class QualityCheck:
    """One check of one sink, over the batches that made it, oldest first."""

    sink: str
    branch: str
    kind: str
    name: str
    batches: list[Checked] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of all these batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def found(self) -> int:
        """Rows that did not meet it."""
        return sum(batch.found for batch in self.batches)

    @property
    def share(self) -> float:
        """Part of the rows that did not meet it, from 0 to 1."""
        return share_of(self.batches)

    @property
    def last(self) -> int | None:
        """The newest batch with such rows; None if there is none."""
        return next((batch.batch_id for batch in reversed(self.batches) if batch.found), None)


def checks_of(batches: Iterable[PastCommit]) -> list[QualityCheck]:
    """Every check of these batches, by sink and name; batches that were rolled back do not count.

    A batch states the counts of its expectations, also 0. Of the other checks it states those that found something.
    """
    found: dict[tuple[str, ...], QualityCheck] = {}
    counted = [(batch, _counts(batch)) for batch in batches if batch.is_counted]
    own = {(_key(batch), name) for batch, counts in counted for name in counts if name in _OWN}
    for batch, counts in counted:
        key = _key(batch)
        for name, count in {**{name: 0 for name in _OWN if (key, name) in own}, **counts}.items():
            check = found.setdefault((*key, name), QualityCheck(*key, name))
            check.batches.append(Checked(batch.batch_id, batch.rows + batch.dead_letters, count))
    return [found[key] for key in sorted(found)]


def share_of(batches: Sequence[Checked]) -> float:
    """Part of the rows of these batches that did not meet a check, from 0 to 1."""
    rows = sum(batch.rows for batch in batches)
    return sum(batch.found for batch in batches) / rows if rows else 0.0


def shares(batches: Sequence[Checked], most: int) -> list[float]:
    """The shares of at most so many groups of successive batches, oldest first; each batch is in one group."""
    groups = min(most, len(batches))
    ends = [round(len(batches) * group / groups) for group in range(groups + 1)] if groups else []
    return [share_of(batches[start:end]) for start, end in pairwise(ends)]


def _key(batch: PastCommit) -> tuple[str, str, str]:
    key = batch.known_mark.key
    return key.name, key.branch, key.kind.value


def _counts(batch: PastCommit) -> dict[str, int]:
    own = zip(_OWN, (batch.unknown_keys, batch.dead_letters, batch.rescued_rows), strict=True)
    return {**record_of(batch).unmet, **{name: count for name, count in own if count}}
