"""Changes of rows by key, and what they leave: a dictionary to which batches and other writers' changes are applied.

A row is still known by the source partition and the offset that it came from, so that an older row of a key can be told
from the newest one. Nothing here is shared with what is judged but the names of the counts.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random

from lakesink_protocol.row_changes import ChangeCounts, Mode, Operation
from proof.oracle import Key, Rows

SPREAD = 1_000
"""Sequences of different writers differ by their remainders, so that no two of them tie."""
_OF_OTHERS = 500


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change, or one live row.

    Attributes:
        row: Where it comes from.
        key: The key of the row.
        sequence: What orders the changes of a key.
        zone: The value by which the table is partitioned.
    """

    row: Key
    key: int
    sequence: int
    zone: int
    operation: Operation = Operation.UPSERT


@dataclass(frozen=True, slots=True)
class Changing:
    """How the rows of a source are changes. The same row is the same change whenever it is asked for.

    Attributes:
        mode: Of the stream.
        has_sequence: False if the order of the source decides; then the partitions of the source share no key.
        keys: How many different keys a partition has.
        salt: Which of all such sources it is.
        has_places: True if each row is an event with a place in the source. Then sequences may tie, a row may change
            its key, and there are snapshot rows. False for rows of a query.
        has_ties: False if no sequences tie all the same: a replay refuses them, for its rows have no places.
    """

    mode: Mode
    has_sequence: bool = True
    keys: int = 3
    salt: int = 0
    has_places: bool = True
    has_ties: bool = field(default=True, repr=False)  # draws begin with the text of a scenario

    def of(self, row: Key) -> tuple[RowChange, ...]:
        """The changes of a row: two for a row whose key changes, and otherwise one."""
        return _changes_of(self, row)

    def count(self, rows: Iterable[Key]) -> tuple[int, int]:
        """Changes of these rows, and how many rows are two."""
        sizes = [len(self.of(row)) for row in rows]
        return sum(sizes), sum(size > 1 for size in sizes)


@lru_cache(maxsize=8192)
def _changes_of(changing: Changing, row: Key) -> tuple[RowChange, ...]:
    random = Random(f"{changing.salt} {row}")
    partition, offset = row
    # Mostly newer than what came before, sometimes late, sometimes equal to an earlier one of its partition.
    lateness = [0, 0, 0, 1, 2, 4] if changing.has_places else [0, 0, 3, 9]
    sequence = max(0, offset - random.choice(lateness)) * SPREAD + partition
    if not (changing.has_places and changing.has_ties):
        sequence += 2 * offset
    keys = [random.randrange(changing.keys) * (1 if changing.has_sequence else 2) for _ in range(2)]
    if not changing.has_sequence:
        keys = [key + partition for key in keys]
    change = RowChange(row, keys[0], sequence, random.randrange(3))
    if changing.mode is Mode.UPSERT:
        return (change,)
    drawn = random.random()
    if drawn < 0.25:
        return (replace(change, operation=Operation.DELETE),)
    if not changing.has_places:
        return (change,)
    if drawn < 0.4 and changing.has_sequence:
        return (replace(change, operation=Operation.SNAPSHOT),)
    if drawn < 0.55 and keys[0] != keys[1]:
        return replace(change, key=keys[1], operation=Operation.DELETE), change
    return (change,)


def newest_of(changes: Iterable[RowChange], *, has_sequence: bool) -> dict[int, RowChange]:
    """The change of each key that counts, of those of one batch."""
    found: dict[int, RowChange] = {}
    for change in changes:
        known = found.get(change.key)
        if known is None or _rank(change, has_sequence=has_sequence) > _rank(known, has_sequence=has_sequence):
            found[change.key] = change
    return found


def sequence_of_others(random: Random, number: int) -> int:
    """A sequence for the row of another writer: each has one of its own."""
    assert number < SPREAD - _OF_OTHERS
    return random.randrange(5) * SPREAD + _OF_OTHERS + number


@dataclass(slots=True)
class Fold:
    """The live rows of each key: one, unless another writer has inserted a key that was there."""

    has_sequence: bool = True
    live: dict[int, list[RowChange]] = field(default_factory=dict)

    @property
    def rows(self) -> Rows:
        """All live rows."""
        return Counter(change.row for changes in self.live.values() for change in changes)

    def insert(self, change: RowChange) -> None:
        """Another writer adds a row, whatever there is of its key."""
        self.live.setdefault(change.key, []).append(change)

    def remove(self, key: int) -> None:
        """Another writer deletes all rows of a key."""
        self.live.pop(key, None)

    def apply(self, changes: Iterable[RowChange]) -> ChangeCounts:
        """Apply one batch of the stream, and count as it must."""
        given = list(changes)
        newest = newest_of(given, has_sequence=self.has_sequence)
        counts: Counter[str] = Counter(superseded=len(given) - len(newest))
        for change in newest.values():
            counts += self._one(change)
        return ChangeCounts(**counts)

    def _one(self, change: RowChange) -> Counter[str]:
        there = self.live.pop(change.key, [])
        deletes = change.operation is Operation.DELETE
        kept = max(there, key=lambda row: row.sequence, default=None)
        if kept is not None and self._holds(kept, change):
            self.live[change.key] = [kept]
            late = {"late_deletes": 1} if deletes else {"late_upserts": 1}
            return Counter({"deletes" if deletes else "upserts": 1, **late, "healed": len(there) - 1})
        if not deletes:
            self.live[change.key] = [change]
        healed = Counter(healed=max(len(there) - 1, 0))
        if deletes:
            return healed + Counter({"deletes": 1, "deleted" if there else "absent": 1})
        return healed + Counter({"upserts": 1, "updated" if there else "inserted": 1})

    def _holds(self, live: RowChange, change: RowChange) -> bool:
        """A live row that this change does not replace."""
        if not self.has_sequence:
            return False
        is_snapshot = change.operation is Operation.SNAPSHOT
        return live.sequence > change.sequence or (live.sequence == change.sequence and is_snapshot)


def _rank(change: RowChange, *, has_sequence: bool) -> tuple[int, bool, int]:
    sequence = change.sequence if has_sequence else 0
    of_stream = has_sequence and change.operation is not Operation.SNAPSHOT
    return sequence, of_stream, change.row[1]
