"""What became of each document with a change: it is in the table whole, or a dead letter, and the changelog has it."""

from collections.abc import Sequence
from typing import Any

from pyiceberg.table import Table

from lakesink.rows.letters import REPLAYS_SUFFIX, SUFFIX
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import find_table
from proof.changes import Fold
from proof.content import CHANGELOG
from proof.oracle import Broken, Key, told_once
from proof.processes.checkpoint import PARTITIONS
from proof.processes.harness import Stream

Row = dict[str, Any]


def judge_told(stream: Stream, table: Table, fold: Fold, batches: Sequence[int]) -> list[Broken]:
    """Everything that the oracle says of whole rows, dead letters, changelog, and of the replays of the letters.

    Args:
        stream: The stream; or that of the replays of its letters, which are all done then.
        table: As loaded.
        fold: The rows that must be live.
        batches: Batches that should be there.
    """
    content, source = stream.content, stream.orders.source
    rows = [row for row in table.scan().to_arrow().to_pylist() if 0 <= row["partition"] < PARTITIONS]
    live = [content.landed(change) for changes in fold.live.values() for change in changes]
    letters = rows_of(stream, f"{stream.table}{SUFFIX}")
    aside = [(batch, key) for batch in batches for key in source.unfit(batch)]
    told = [(row["batch_id"], _place(row), _letter(row)) for row in letters]
    changes = [(batch, change) for batch in batches for change in content.changes_of(source.keys(batch))]
    logged = [content.logged(change, stream.sink_id, batch) for batch, change in changes]
    replays = [(row["letter_id"], row["replay"]) for row in rows_of(stream, f"{stream.table}{SUFFIX}{REPLAYS_SUFFIX}")]
    return [
        *told_once("rows of the table", rows, live),
        *told_once("dead letters", told, [(batch, key, content.letter(key)) for batch, key in aside]),
        *told_once("changelog", rows_of(stream, CHANGELOG), logged),
        *told_once("replays", replays, [(row["letter_id"], 1) for row in letters if stream.replays]),
    ]


def rows_of(stream: Stream, name: str) -> list[Row]:
    """The rows of a table of the stream's catalog; none if there is no such table."""
    table = find_table(connect("lake", stream.properties), name)
    return [] if table is None else table.scan().to_arrow().to_pylist()


def _place(row: Row) -> Key:
    return row["partition"], row["offset"]


def _letter(row: Row) -> tuple[Any, ...]:
    return row["reason"], row["operation"], row["row_key"], row["row_sequence"]
