"""A recipe for an engine: files to write, requirements, first queries, and notes. Nothing is run here. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class File:
    """A file to write."""

    name: str
    what: str  # its destination, in words
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """A first query."""

    what: str  # the question that it answers
    text: str  # in the engine's language, without a semicolon


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything for one engine."""

    engine: str  # with the tested version
    needs: tuple[str, ...]  # jars, packages, variables
    files: tuple[File, ...]
    queries: tuple[Query, ...]
    notes: tuple[str, ...] = ()


def properties_file(properties: dict[str, str], separator: str = "=") -> str:
    """A Java properties file; a backslash escapes in it."""
    escaped = {name: value.replace("\\", "\\\\") for name, value in properties.items()}
    return "".join(f"{name}{separator}{value}\n" for name, value in escaped.items())


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot for a time-travel query."""

    what: str  # its batch, in words
    snapshot_id: int
    tag: str | None = None  # a tag that stays at the snapshot; None for none


def newest_batches(snapshots: str, entry: str) -> str:
    """The newest snapshots with facts of their summaries; `entry` reads one, with ``{}`` in place of its key."""
    keys = {"sink_id": "lakesink.sink-id", "batch_id": "lakesink.batch-id", "added_records": "added-records"}
    columns = ", ".join(f"{entry.format(key)} AS {name}" for name, key in keys.items())
    return f"SELECT committed_at, snapshot_id, {columns} FROM {snapshots} ORDER BY committed_at DESC LIMIT 10"


def first_queries(
    moment: Moment | None, *, table: str, newest: str, at_snapshot: str, at_tag: str = ""
) -> tuple[Query, ...]:
    """Rows, newest batches, and the table as of `moment`, if there is one.

    `table` is as it follows FROM, `newest` a query for the newest snapshots. The suffixes `at_snapshot` and `at_tag`
    read a snapshot or a tag, with ``{}`` for its id or literal; the engine has no tags if `at_tag` is empty.
    """
    found = [Query("how many rows", f"SELECT count(*) FROM {table}"), Query("the newest batches", newest)]
    if moment is not None:
        at = at_snapshot.format(moment.snapshot_id)
        found.append(Query(moment.what, f"SELECT * FROM {table} {at}"))
    if moment is not None and moment.tag is not None and at_tag:
        at = at_tag.format(text_literal(moment.tag))
        found.append(Query(f"{moment.what}, by its tag", f"SELECT * FROM {table} {at}"))
    return tuple(found)


def text_literal(text: str) -> str:
    """A literal of standard SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(parts: tuple[str, ...], mark: str) -> str:
    """Quoted identifiers: any part may be a reserved word."""
    return ".".join(f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in parts)
