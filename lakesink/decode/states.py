"""Documents that are new states of rows: each is an upsert of its row."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakesink.decode.documents import Decoder
from lakesink.rows.changed_rows import ChangedRows, positions_in, same_operation
from lakesink_protocol.quality import Quality
from lakesink_protocol.receipt import Misfit
from lakesink_protocol.row_changes import Operation


@dataclass(slots=True)
class StateDecoder:
    """Decodes documents to upserts; see `lakesink.rows.changed_rows.ChangeDecoder`."""

    decoder: Decoder
    _positions: deque[tuple[pa.Array, pa.Array]] = field(default_factory=deque, init=False)

    @property
    def quality(self) -> Quality:
        """See `ChangeDecoder`."""
        return self.decoder.quality

    @property
    def misfits(self) -> Sequence[Misfit]:
        """See `ChangeDecoder`."""
        return self.decoder.misfits

    @property
    def malformed(self) -> int:
        """See `ChangeDecoder`."""
        return self.decoder.malformed

    @property
    def splits(self) -> int:
        """No document becomes two upserts."""
        return 0

    @property
    def tombstones(self) -> int:
        """A document that is NULL is malformed."""
        return 0

    def changes(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ChangedRows]:
        """See `ChangeDecoder`."""
        for rows in self.decoder.decoded(self._with_positions(batches)):
            if rows.num_rows:
                places, offsets = self._next(rows.num_rows)
                yield ChangedRows(rows, same_operation(Operation.UPSERT, rows.num_rows), places, offsets)

    def _with_positions(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                self._positions.append(positions_in(batch))
            yield batch

    def _next(self, rows: int) -> tuple[pa.Array, pa.Array]:
        """The positions of the next rows: the decoder joins batches, and returns a row for each of theirs."""
        found = []
        while rows > 0:
            found.append(self._positions.popleft())
            rows -= len(found[-1][0])
        assert rows == 0, "a decoder joins whole batches"
        places, offsets = zip(*found, strict=True)
        return pa.concat_arrays(places), pa.concat_arrays(offsets)
