"""Which batches of a table of dead letters have the letters of replays."""

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from lakesink.rows.side_rows import APPLICATION


def batches_of_letters(
    replays: Table, letters: Table, application: str, numbers: Collection[int]
) -> set[tuple[str, int]]:
    """The digest of the application that wrote the letters, see `application_of`, and the batch.

    Args:
        replays: The table that assigns letters to replays.
        letters: The table of dead letters.
        application: That which replays.
        numbers: Of the replays.
    """
    assigned = EqualTo(term=Reference("application"), value=literal(application))
    wanted = {
        letter
        for batch in replays.scan(assigned, ("letter_id", "replay")).to_arrow_batch_reader()
        for letter, replay in _rows(batch, "letter_id", "replay")
        if replay in numbers
    }
    return {
        (letter[:APPLICATION], batch_id)
        for batch in letters.scan(selected_fields=("letter_id", "batch_id")).to_arrow_batch_reader()
        for letter, batch_id in _rows(batch, "letter_id", "batch_id")
        if letter in wanted
    }


def _rows(batch: pa.RecordBatch, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)
