"""The command ``status``: how each sink of a table, a directory or a whole catalog stands. Only reads."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import SinkState, sinks
from lakesink_catalog.words import age, ago, as_arguments, counted, moment, number, rows_in_words, size
from lakesink_protocol.errors import CatalogError, LakesinkError
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.ledger import stated
from lakesink_protocol.redact import redact
from lakesink_tools.audit.finding import awaits_replay, name_of_rows, of_changes, of_quality, of_replay
from lakesink_tools.cli.output import NOT_CHECKED, NOT_WELL, OK, Report, plain, progress
from lakesink_tools.cli.sink_health import SinkHealth, document_of, health_of, prepared_hint, stale_hints, waiting_in
from lakesink_tools.cli.target import is_directory
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.listing import tables_in
from lakesink_tools.past.records import key_of

if TYPE_CHECKING:
    from lakesink_tools.operate.maintain import Seen

Found = list[tuple[SinkState, SinkHealth]]
"""The sinks of a table, and how they stand."""
_COLUMNS = ("sink", "branch", "last batch>", "committed", "ago>", "batches>", "{rows}>", "size>", "since", "standing")
_COLUMNS_OF_CATALOG = ("table", "sink", "branch", "last batch>", "committed", "ago>", "rows>", "standing")
_SHOWN = 5
_TOTALS = {
    "rows": "total-records",
    "files": "total-data-files",
    "bytes": "total-files-size",
    "delete_files": "total-delete-files",
    "position_deletes": "total-position-deletes",
}


def status(table: str | None, catalog: str | None, max_age: timedelta | None, limit: int) -> Report:
    """Exit code 1: no sink, or one whose next batch would be refused or whose last one is older than --max-age.

    Exit code 2: a table of the catalog could not be read, and no sink has a problem.
    """
    if table is None:
        return _of_catalog(catalog, max_age, limit)
    if is_directory(table, catalog):
        from lakesink_tools.cli.directory import status_of_directory  # tables need nothing of it

        return status_of_directory(table, max_age)
    opened = load_to_read(connect(catalog, create=False), table)
    return _of_table(table, opened, max_age, as_arguments(table, catalog))


def _of_catalog(named: str | None, max_age: timedelta | None, limit: int) -> Report:
    """How each sink in the first tables of a catalog stands."""
    catalog, now = connect(named, create=False), datetime.now(UTC)
    listed = list(tables_in(catalog))
    looked_at, hidden = listed[:limit], len(listed[limit:])
    tables, unread = _looked_at(catalog, looked_at, max_age, now)
    every = [one for found in tables.values() for one in found]
    well = NOT_CHECKED if unread else OK if every else NOT_WELL
    no_sink = [*("-" for _ in _COLUMNS_OF_CATALOG[2:]), "no sink"]
    shown = list(unread.items())[:_SHOWN]
    hints = [f"{plain(name)} could not be read: [{error.code}] {error.what}" for name, error in shown]
    if len(unread) > _SHOWN:
        hints.append(f"{number(len(unread) - _SHOWN)} more could not be read; --output json has all.")
    if hidden:
        after = plain(looked_at[-1][0])
        hints.append(f"Not looked at: {counted(hidden, 'table')} after {after}; --limit looks at more.")
    hints += [*stale_hints(every, max_age, now)[:_SHOWN], _next_table(tables, named)]
    return Report(
        document={
            "catalog": catalog.name,
            "tables": [
                {"table": name, "sinks": [document_of(state, standing, now) for state, standing in found]}
                for name, found in tables.items()
            ],
            "unreadable": [
                {"name": name, "code": error.code, "what": redact(error.what)} for name, error in unread.items()
            ],
            "not_looked_at": hidden,
        },
        title=f"{catalog.name}: {counted(len(every), 'sink')} in {number(sum(map(bool, tables.values())))} of"
        f" {counted(len(tables), 'table')}",
        columns=_COLUMNS_OF_CATALOG,
        rows=[
            [name, *row]
            for name, found in tables.items()
            for row in [[*_last_batch(one, now), number(one.rows), standing.word] for one, standing in found]
            or [no_sink]
        ],
        hints=[redact(hint) for hint in hints],
        exit_code=well if all(standing.is_well for _, standing in every) else NOT_WELL,
    )


def _looked_at(
    catalog: Catalog, listed: Sequence[tuple[str, LakesinkError | None]], max_age: timedelta | None, now: datetime
) -> tuple[dict[str, Found], dict[str, LakesinkError]]:
    """Tables by name, and why other tables could not be loaded, or namespaces not be listed: they stop nothing."""
    tables: dict[str, Found] = {}
    unread: dict[str, LakesinkError] = {}
    with progress() as say:
        for place, (name, trouble) in enumerate(listed, 1):
            say(f"{place:,} of {counted(len(listed), 'table')}: {plain(name)}")
            try:
                if trouble is None:
                    tables[name] = _found(load_to_read(catalog, name), max_age, now)
                else:
                    unread[name] = trouble
            except LakesinkError as error:
                unread[name] = error
    return tables, unread


def _found(table: Table, max_age: timedelta | None, now: datetime) -> Found:
    return [(state, health_of(state, max_age, now)) for state in sinks(table)]


def _next_table(tables: Mapping[str, Found], named: str | None) -> str:
    written = [name for name, found in tables.items() if found]
    if not written:
        return (
            "This catalog has no table that a lakesink stream has written to; a dropped table is not shown."
            " Next: check --catalog, or start with lakesink init."
        )
    troubled = [name for name in written if any(standing.word != "ok" for _, standing in tables[name])]
    return f"Next: lakesink status {as_arguments((troubled or written)[0], named)}"


def _of_table(identifier: str, table: Table, max_age: timedelta | None, arguments: str) -> Report:
    from lakesink_tools.operate.maintain import seen_in  # PyArrow, and all that reads manifests

    now = datetime.now(UTC)
    found = _found(table, max_age, now)
    snapshots, head = len(table.metadata.snapshots), table.metadata.current_snapshot()
    totals = {name: 0 if head is None else stated(head.summary, key) for name, key in _TOTALS.items()}
    states = [state for state, _ in found]
    waiting, unlisted = waiting_in(table, states)
    health = dict(seen_in(table, states, arguments))
    first = [] if found else _first_batches(table)
    next_step = f"Next: lakesink log {arguments}"
    if not found:
        then = "start its query again" if waiting or first else "check the name of the table and the catalog"
        next_step = f"No lakesink stream has committed to {identifier}. Next: {then}."
    return Report(
        document={
            "table": identifier,
            "catalog": table.catalog.name,
            "snapshots": snapshots,
            **totals,
            "sinks": [document_of(state, standing, now) for state, standing in found],
            "prepared": [{"sink": one.key.name, "branch": one.key.branch, "batch_id": one.batch_id} for one in waiting],
            "health": {
                branch: {"unknown": seen} if isinstance(seen, str) else seen.document for branch, seen in health.items()
            },
        },
        title=f"{identifier} in {table.catalog.name}: {rows_in_words(totals['rows'], totals['position_deletes'])},"
        f" {counted(totals['files'], 'file')}, {size(totals['bytes'])}, {counted(snapshots, 'snapshot')}",
        columns=[name.format(rows=name_of_rows(state.changes for state, _ in found)) for name in _COLUMNS],
        rows=[_row(state, standing, now) for state, standing in found],
        hints=[
            *_ages(states, max_age, now),
            *(prepared_hint(plain(one.key.name), one.batch_id) for one in waiting),
            *unlisted,
            *first,
            *_hints(arguments, found, max_age, now),
            *_of_health(health),
            next_step,
        ],
        exit_code=OK if found and all(standing.is_well for _, standing in found) else NOT_WELL,
    )


def _row(state: SinkState, standing: SinkHealth, now: datetime) -> list[str]:
    return [
        *_last_batch(state, now),
        number(state.batches),
        number(state.rows),
        size(state.bytes),
        moment(state.since) if state.batches or state.trouble is None else "-",
        standing.word,
    ]


def _last_batch(state: SinkState, now: datetime) -> list[str]:
    """A sink, its last batch, when that was committed and how long ago."""
    when = state.committed_at
    return [key_of(state).label, state.branch, number(state.batch_id), moment(when), age(when, now)]


def _ages(states: list[SinkState], max_age: timedelta | None, now: datetime) -> list[str]:
    """How long ago each sink wrote: nothing in a table says whether its query still runs."""
    told = [
        f"Last batch of sink {plain(state.sink)}: {ago(now - state.committed_at)}."
        for state in states
        if state.committed_at is not None
    ]
    streams = any(state.kind == SinkKind.STREAM.value and state.trouble is None for state in states)
    if streams and max_age is None:
        told.append("ok: the next batch would be accepted. To detect a stopped query, use --max-age '30 min'.")
    return told


def _hints(arguments: str, found: Found, max_age: timedelta | None, now: datetime) -> list[str]:
    hints = [
        f"The next batch of sink {plain(state.sink)} would be refused: {standing.word}."
        f" Next: lakesink explain {state.trouble.name}"
        for state, standing in found
        if state.trouble is not None and not awaits_replay(state)
    ]
    hints += [of_replay(arguments, state) for state, _ in found if awaits_replay(state)]
    hints += [
        f"Sink {plain(state.sink)}: {said}" for state, _ in found for said in (*of_changes(state), *of_quality(state))
    ]
    return hints + stale_hints(found, max_age, now)


def _of_health(found: "Mapping[str, Seen | str]") -> Iterator[str]:
    for branch, seen in found.items():
        if isinstance(seen, str):
            yield f"Health of {plain(branch)}: not known. {seen}"
        else:
            yield f"Health of {plain(branch)}: {seen.health}."
            if seen.offer:
                yield seen.offer


def _first_batches(table: Table) -> list[str]:
    """What side tables have of first batches that the table lacks."""
    from lakesink_tools.audit.letters import of_first_batches  # PyArrow, as above

    def side_of(name: str) -> Table | None:
        try:
            return load_to_read(table.catalog, name)
        except CatalogError:
            return None

    return [f"{plain(note.subject)}: {note.found}" for note in of_first_batches(table, side_of)]
