"""First queries in each engine's SQL. They are shown, never run here. Pure."""

from dataclasses import dataclass

from lakesink.engines.recipe import Query
from lakesink.engines.target import Moment


@dataclass(frozen=True, slots=True)
class Words:
    """The differences between engines."""

    table: str  # as it follows FROM
    newest: str  # a query for the newest snapshots
    at_snapshot: str  # suffix that reads a snapshot; ``{}`` stands for its id
    at_tag: str = ""  # suffix that reads a tag; ``{}`` stands for its literal; empty if the engine has none


def newest_batches(snapshots: str, entry: str) -> str:
    """The newest snapshots with facts of their summaries; `entry` reads one, with ``{}`` in place of its key."""
    keys = {"sink_id": "lakesink.sink-id", "batch_id": "lakesink.batch-id", "added_records": "added-records"}
    columns = ", ".join(f"{entry.format(key)} AS {name}" for name, key in keys.items())
    return f"SELECT committed_at, snapshot_id, {columns} FROM {snapshots} ORDER BY committed_at DESC LIMIT 10"  # noqa: S608 - shown, never run here


def first_queries(words: Words, moment: Moment | None) -> tuple[Query, ...]:
    """Rows, newest batches, and the table as of `moment`, if there is one."""
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
    """Quoted identifiers: any part may be a reserved word."""
    return ".".join(f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in parts)
