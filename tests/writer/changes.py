"""Values of every type of keys and sequences, in their order, and the newest changes by a dictionary."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakesink.keys.change_order import KeyNames
from lakesink.keys.newest_of_task import NewestChanges
from lakesink.parquet.single_value import raw_values
from lakesink.rows.changed_rows import ChangedRows
from lakesink_protocol.row_changes import Operation


def _viewed(values: Sequence[int], stored: pa.DataType, kind: pa.DataType) -> pa.Array:
    return pa.array(values, stored).view(kind)


INTS, LONGS = [-(2**31), -1, 0, 1, 2**31 - 1], [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
DECIMALS = [Decimal("-" + "9" * 38), Decimal(-(2**64)), Decimal(-1), Decimal(0), Decimal(2**64), Decimal("9" * 38)]
SCALED = [Decimal("-9999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("0.01"), Decimal("9999999.99")]
TEXTS = ["", "\0", "\0\0", "a", "a\0", "a\0b", "a ", "aa", "b" * 5_000, "e\u0301", "é", "\uffff", "\U0001f600"]
BYTES = [b"", b"\0", b"\0\0", b"a\0b", b"\x7f", b"\x80", b"\xff", b"\xff" * 5_000]
SEQUENCES: Mapping[str, pa.Array] = {
    "int": pa.array(INTS, pa.int32()),
    "long": pa.array(LONGS, pa.int64()),
    "decimal(38,0)": pa.array(DECIMALS, pa.decimal128(38, 0)),
    "decimal(9,2)": pa.array(SCALED, pa.decimal128(9, 2)),
    "date": _viewed(INTS, pa.int32(), pa.date32()),
    "time": _viewed([0, 1, 43_200_000_000, 86_399_999_999], pa.int64(), pa.time64("us")),
    "timestamp": _viewed(LONGS, pa.int64(), pa.timestamp("us")),
    "timestamptz": _viewed(LONGS, pa.int64(), pa.timestamp("us", "UTC")),
    "string": pa.array(TEXTS, pa.string()),
}
"""Values of each type that can be a sequence, ascending."""
KEYS: Mapping[str, pa.Array] = {
    **SEQUENCES,
    "boolean": pa.array([False, True]),
    "uuid": pa.array(
        [b"\0" * 16, b"\0" * 15 + b"\1", b"\x7f" + b"\xff" * 15, b"\x80" * 16, b"\xff" * 16], pa.binary(16)
    ),
    "fixed": pa.array([b"\0" * 3, b"\0\0\1", b"\x80\0\0", b"\xff" * 3], pa.binary(3)),
    "binary": pa.array(BYTES, pa.binary()),
}
"""Values of each type that can be a key, all different."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change; key and sequence are positions among the values of their types. A delete has no payload."""

    key: tuple[int, ...]
    sequence: tuple[int, ...]
    operation: Operation
    place: int | None
    offset: int | None
    payload: int | None

    @property
    def order(self) -> tuple[Any, ...]:
        """Greater is newer, before places are compared."""
        return (*self.sequence, self.operation is not Operation.SNAPSHOT)

    @property
    def content(self) -> tuple[Any, ...]:
        """Equal for changes that are the same."""
        return self.operation, self.payload

    def is_older_than(self, other: "Change") -> bool:
        """By its offset."""
        if self.place is None or other.place != self.place:
            return False
        return self.offset < other.offset  # type: ignore[operator] # both are known


@dataclass(frozen=True, slots=True)
class Kinds:
    """The values of the columns of key and sequence."""

    keys: tuple[pa.Array, ...]
    sequence: tuple[pa.Array, ...]

    @property
    def columns(self) -> KeyNames:
        """Their names."""
        return KeyNames(
            tuple(f"k{at}" for at in range(len(self.keys))), tuple(f"s{at}" for at in range(len(self.sequence)))
        )

    def changed_rows(self, changes: Sequence[Change], *, payload: bool) -> ChangedRows:
        """The changes as rows; with a payload if they are to be stored."""
        arrays = [
            values.take(pa.array(positions, pa.int64()))
            for all_values, found in ((self.keys, "key"), (self.sequence, "sequence"))
            for values, positions in zip(
                all_values, zip(*(getattr(one, found) for one in changes), strict=True), strict=False
            )
        ]
        names = [*self.columns.keys, *self.columns.sequence]
        if payload:
            arrays.append(pa.array([one.payload for one in changes], pa.int64()))
            names.append("payload")
        return ChangedRows(
            pa.RecordBatch.from_arrays(arrays, names=names),
            pa.array([one.operation.value for one in changes], pa.int8()),
            pa.array([one.place for one in changes], pa.int64()),
            pa.array([one.offset for one in changes], pa.int64()),
        )

    def changes(self, rows: ChangedRows) -> Iterator[Change]:
        """The inverse, by the bits of the values."""
        columns = []
        for values, name in zip(
            (*self.keys, *self.sequence), (*self.columns.keys, *self.columns.sequence), strict=True
        ):
            positions = {value: at for at, value in enumerate(raw_values(values))}
            columns.append([positions[value] for value in raw_values(rows.rows.column(name))])
        count = rows.rows.num_rows
        payloads = rows.rows.column("payload").to_pylist() if "payload" in rows.rows.schema.names else [None] * count
        others = zip(rows.operations.to_pylist(), rows.places.to_pylist(), rows.offsets.to_pylist(), strict=True)
        for at, (operation, place, offset) in enumerate(others):
            found = tuple(column[at] for column in columns)
            key, sequence = found[: len(self.keys)], found[len(self.keys) :]
            yield Change(key, sequence, Operation(operation), place, offset, payloads[at])

    def newest(self, batches: Sequence[Sequence[Change]]) -> tuple[set[Change], int]:
        """The newest changes by the code under test, and how many were superseded."""
        newest = NewestChanges(self.columns)
        for batch in batches:
            stored = [one for one in batch if one.operation is not Operation.DELETE]
            deletes = [one for one in batch if one.operation is Operation.DELETE]
            if stored:
                newest.store(self.changed_rows(stored, payload=True))
            if deletes:
                newest.delete(self.changed_rows(deletes, payload=False))
        found = [one for part in newest.taken() for rows in part for one in self.changes(rows)]
        assert len(set(found)) == len(found)
        return set(found), newest.superseded


def newest_by_dictionary(changes: Sequence[Change], *, has_sequence: bool) -> set[Change] | str:
    """The newest changes, or the code of the error."""
    by_key: dict[tuple[int, ...], list[Change]] = {}
    for change in changes:
        by_key.setdefault(change.key, []).append(change)
    kept = set()
    for of_key in by_key.values():
        greatest = max(change.order for change in of_key)
        candidates = [change for change in of_key if change.order == greatest or not has_sequence]
        found = [change for change in candidates if not any(change.is_older_than(other) for other in candidates)]
        if not has_sequence and len(found) > 1:
            return "LAKESINK_KEY_TWICE"
        if len({change.content for change in found}) > 1:
            return "LAKESINK_SEQUENCE_TIED"
        kept.add(max(found, key=lambda one: (-1, -1) if one.place is None else (one.place, one.offset)))
    return kept
