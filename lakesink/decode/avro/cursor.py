"""Reads many values at once: each value has a position in the bytes, and all positions move together.

Avro stores neither the length of a value nor the positions of its fields: they are known only after reading. So values
are read field by field, each field of all values in a few calls of NumPy. A skipped or malformed value is
positioned at the zeros after the last byte, which decode as an empty value of any type.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

ZEROS = 16
"""Zeros after the last byte: more than a number takes."""
_LONGEST_VARINT = 10


@dataclass(slots=True)
class Cursor:
    """Positions in the bytes.

    Attributes:
        data: All bytes, and `ZEROS` zeros.
        at: Next position of each value.
        end: Limit of each value.
        active: False for a value that is not read, or no longer read.
        misfits: True for a malformed value.
        marked: True for a value of which the columns hold only a part.
    """

    data: Bytes
    at: Whole
    end: Whole
    active: Mask
    misfits: Mask
    marked: Mask

    def __len__(self) -> int:
        return len(self.at)

    def fail(self, wrong: Mask) -> None:
        """Mark values as malformed and stop reading them."""
        wrong = wrong & self.active
        if wrong.any():
            self.misfits = self.misfits | wrong
            self.active = self.active & ~wrong
            self._move(self.at)

    def mark(self, chosen: Mask) -> None:
        """Mark values of which the columns hold only a part."""
        self.marked = self.marked | chosen

    def forgive(self, before: "Cursor", ends: "Cursor") -> None:
        """Only mark the values that failed since `before`: continue where `ends`, which reads these, ended."""
        failed = before.active & ~self.active
        self.active, self.misfits = before.active, before.misfits
        self.join(ends, failed)
        self.mark(failed)

    def only(self, chosen: Mask) -> "Cursor":
        """A cursor at the same positions that reads only the chosen values; see `join`."""
        active, none = self.active & chosen, np.zeros_like(self.active)
        return Cursor(self.data, np.where(active, self.at, self.padding), self.end, active, none, none)

    def join(self, part: "Cursor", chosen: Mask) -> None:
        """Continue where `only` for the same values ended."""
        self.at = np.where(self.active & chosen, part.at, self.at)
        self.fail(part.misfits)
        if part.marked.any():
            self.mark(part.marked)

    def pick(self, positions: Whole) -> "Cursor":
        """A cursor over some values; see `put`."""
        active, none = self.active[positions], np.zeros(len(positions), np.bool_)
        return Cursor(self.data, self.at[positions], self.end[positions], active, none, none)

    def put(self, positions: Whole, part: "Cursor") -> None:
        """Continue where `pick` for the same values ended."""
        at, wrong = self.at.copy(), np.zeros_like(self.misfits)
        at[positions], wrong[positions] = part.at, part.misfits
        self.at = at
        self.fail(wrong)
        if part.marked.any():
            marked = np.zeros_like(self.marked)
            marked[positions] = part.marked
            self.mark(marked)

    def varint(self) -> Whole:
        """A variable-length integer of each value."""
        at = self.at
        byte = self.data[at]
        found, at = (byte & 0x7F).astype(np.uint64), at + 1
        more = np.flatnonzero(byte & 0x80)
        for number in range(1, _LONGEST_VARINT):
            if not len(more):
                break
            byte = self.data[at[more]]
            found[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * number)
            at[more] += 1
            if number == _LONGEST_VARINT - 1:
                byte = np.where(byte > 1, np.uint8(0x80), np.uint8(0))  # beyond 64 bits
            more = more[byte >= 0x80]
        endless = np.zeros_like(self.active)
        endless[more] = True
        self._move(at)
        self.fail(endless | (self.at > self.end))
        return (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)

    def plain(self, size: int) -> Bytes:
        """`size` bytes of each value, as rows."""
        start, _ = self.fixed(size)
        assert size <= ZEROS
        rows: Bytes = self.data[start[:, None] + np.arange(size)]
        return rows

    def fixed(self, size: int) -> tuple[Whole, Whole]:
        """Start and number of `size` bytes of each value; the number is 0 for a value that is not read."""
        self.fail(self.end - self.at < size)
        start, length = self.at, np.where(self.active, size, 0)
        self._move(start + length)
        return start, length

    def span(self) -> tuple[Whole, Whole]:
        """Start and length of each value's length-prefixed bytes."""
        length = self.varint()
        self.fail((length < 0) | (length > self.end - self.at))
        start, length = self.at, np.where(self.active, length, 0)
        self._move(start + length)
        return start, length

    def validity(self) -> pa.Buffer | None:
        """Arrow's validity bitmap of these values."""
        return None if self.active.all() else bitmap(self.active)

    @property
    def padding(self) -> int:
        """Position of the values that are not read."""
        return len(self.data) - ZEROS

    def _move(self, at: Whole) -> None:
        self.at = at if self.active.all() else np.where(self.active, at, self.padding)


def bitmap(mask: Mask) -> pa.Buffer:
    """Booleans as an Arrow bitmap."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
