"""Queries to begin with, in each engine's SQL. Shown, never run here. Pure."""

from dataclasses import dataclass

from lakesink.engines.recipe import Query
from lakesink.engines.target import Moment


@dataclass(frozen=True, slots=True)
class Words:
    """What differs between engines.

    Attributes:
        table: The table as it follows FROM.
        newest: A query for the newest snapshots.
        at_snapshot: What goes behind the table to read a snapshot; ``{}`` stands for its id.
        at_tag: The same for a tag, for its literal; empty where an engine takes none.
    """

    table: str
    newest: str
    at_snapshot: str
    at_tag: str = ""


def newest_batches(snapshots: str, entry: str) -> str:
    """The newest snapshots with what their summaries say.

    Args:
        snapshots: The metadata table.
        entry: How an entry of the summary is taken; ``{}`` stands for its key.
    """
    keys = {"sink_id": "lakesink.sink-id", "batch_id": "lakesink.batch-id", "added_records": "added-records"}
    columns = ", ".join(f"{entry.format(key)} AS {name}" for name, key in keys.items())
    return f"SELECT committed_at, snapshot_id, {columns} FROM {snapshots} ORDER BY committed_at DESC LIMIT 10"  # noqa: S608 - shown, never run here


def first_queries(words: Words, moment: Moment | None) -> tuple[Query, ...]:
    """Rows, newest batches, and the table as it was.

    Args:
        words: The engine's.
        moment: A snapshot to go back to; None for none.
    """
    found = [
        Query("how many rows", f"SELECT count(*) FROM {words.table}"),  # noqa: S608 - as above
        Query("the newest batches", words.newest),
    ]
    if moment is not None:
        at = words.at_snapshot.format(moment.snapshot_id)
        found.append(Query(moment.what, f"SELECT * FROM {words.table} {at}"))  # noqa: S608 - as above
    if moment is not None and moment.tag is not None and words.at_tag:
        at = words.at_tag.format(text_literal(moment.tag))
        found.append(Query(f"{moment.what}, by its tag", f"SELECT * FROM {words.table} {at}"))  # noqa: S608 - as above
    return tuple(found)


def text_literal(text: str) -> str:
    """A literal of standard SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(parts: tuple[str, ...], mark: str) -> str:
    """Identifiers, each in quotes: any of them may be a reserved word."""
    return ".".join(f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in parts)
