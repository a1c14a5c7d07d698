"""Many values read at once: a place in the bytes for each of them, and all places move together.

Avro says neither where a value ends nor where its fields begin: that comes out as they are read. So values are not read
one after the other but field by field, each field of all of them in a few calls of NumPy. A value that is not to be
read, or turned out to be malformed, waits at zeros behind the last byte, which read as nothing of any type.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

ZEROS = 16
"""Behind the last byte: more than a number takes."""
_LONGEST_VARINT = 10


@dataclass(slots=True)
class Cursor:
    """Places in the bytes.

    Attributes:
        data: All bytes, and `ZEROS` zeros.
        at: Where each value goes on.
        end: Where it must not go beyond.
        there: False for a value that is not read, or not any more.
        misfits: True for one that is malformed.
    """

    data: Bytes
    at: Whole
    end: Whole
    there: Mask
    misfits: Mask

    def __len__(self) -> int:
        return len(self.at)

    def fail(self, wrong: Mask) -> None:
        """Give up values that are wrong."""
        wrong = wrong & self.there
        if wrong.any():
            self.misfits = self.misfits | wrong
            self.there = self.there & ~wrong
            self._move(self.at)

    def only(self, chosen: Mask) -> "Cursor":
        """The same places, to read the chosen values alone; see `join`."""
        there = self.there & chosen
        return Cursor(self.data, np.where(there, self.at, self.waiting), self.end, there, np.zeros_like(there))

    def join(self, part: "Cursor", chosen: Mask) -> None:
        """Go on where `only` for the same values came to."""
        self.at = np.where(self.there & chosen, part.at, self.at)
        self.fail(part.misfits)

    def pick(self, positions: Whole) -> "Cursor":
        """Some values alone; see `put`."""
        there = self.there[positions]
        return Cursor(self.data, self.at[positions], self.end[positions], there, np.zeros_like(there))

    def put(self, positions: Whole, part: "Cursor") -> None:
        """Go on where `pick` for the same values came to."""
        at, wrong = self.at.copy(), np.zeros_like(self.misfits)
        at[positions], wrong[positions] = part.at, part.misfits
        self.at = at
        self.fail(wrong)

    def varint(self) -> Whole:
        """A whole number of each value."""
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
        endless = np.zeros_like(self.there)
        endless[more] = True
        self._move(at)
        self.fail(endless | (self.at > self.end))
        return (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)

    def plain(self, size: int) -> Bytes:
        """So many bytes of each value, as rows."""
        start, _ = self.fixed(size)
        assert size <= ZEROS
        rows: Bytes = self.data[start[:, None] + np.arange(size)]
        return rows

    def fixed(self, size: int) -> tuple[Whole, Whole]:
        """Where so many bytes of each value begin, and how many they are: none where there is no value."""
        self.fail(self.end - self.at < size)
        start, length = self.at, np.where(self.there, size, 0)
        self._move(start + length)
        return start, length

    def span(self) -> tuple[Whole, Whole]:
        """Where bytes begin that say how many they are, and how many they are."""
        length = self.varint()
        self.fail((length < 0) | (length > self.end - self.at))
        start, length = self.at, np.where(self.there, length, 0)
        self._move(start + length)
        return start, length

    def validity(self) -> pa.Buffer | None:
        """The bitmap of Arrow arrays of these values."""
        return None if self.there.all() else bitmap(self.there)

    @property
    def waiting(self) -> int:
        """Where values wait that are not read."""
        return len(self.data) - ZEROS

    def _move(self, at: Whole) -> None:
        self.at = at if self.there.all() else np.where(self.there, at, self.waiting)


def bitmap(mask: Mask) -> pa.Buffer:
    """Booleans as Arrow has them."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
