"""The command ``status``: how each sink of a table stands. Only reads."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.table import Table

from lakesink.audit.finding import key_of, of_documents, sink_label
from lakesink.cli.directory import is_directory, status_of_directory
from lakesink.cli.output import NOT_WELL, OK, Report, ago, moment, number, plain, size, span
from lakesink.cli.rows import parsed_offsets
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import SinkState, sinks
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.ledger import stated

_COLUMNS = ("sink", "branch", "last batch>", "committed", "ago>", "batches>", "rows>", "size>", "since", "standing")
_TOTALS = {"rows": "total-records", "files": "total-data-files", "bytes": "total-files-size"}
_WELL = ("ok", "unproven")


def status(table: str, catalog: str | None, max_age: timedelta | None) -> Report:
    """Exit code 1: no sink, or one whose next batch would be refused or whose last one is too old."""
    if is_directory(table, catalog):
        return status_of_directory(table, max_age)
    return _report(table, load_table(connect(catalog, create=False), table), max_age)


def _report(identifier: str, table: Table, max_age: timedelta | None) -> Report:
    now = datetime.now(UTC)
    found = [(state, _standing(state, max_age, now)) for state in sinks(table)]
    snapshots, totals = len(table.metadata.snapshots), _totals(table)
    return Report(
        document={
            "table": identifier,
            "catalog": table.catalog.name,
            "snapshots": snapshots,
            **totals,
            "sinks": [_document(state, standing, now) for state, standing in found],
        },
        title=f"{identifier} in {table.catalog.name}: {number(totals['rows'])} rows, {number(totals['files'])} files,"
        f" {size(totals['bytes'])}, {number(snapshots)} snapshots",
        columns=_COLUMNS,
        rows=[_row(state, standing, now) for state, standing in found],
        hints=[*_ages([state for state, _ in found], max_age, now), *_hints(identifier, found)],
        exit_code=OK if found and all(standing in _WELL for _, standing in found) else NOT_WELL,
    )


def _standing(state: SinkState, max_age: timedelta | None, now: datetime) -> str:
    """One word: ``ok``, ``unproven``, ``stale``, or what the next batch would be refused for."""
    if state.trouble is not None:
        return state.trouble.value
    if max_age is not None and (state.committed_at is None or now - state.committed_at > max_age):
        return "stale"
    return "unproven" if state.unverifiable else "ok"


def _totals(table: Table) -> dict[str, int | None]:
    head = table.metadata.current_snapshot()
    if head is None:
        return dict.fromkeys(_TOTALS, 0)
    return {name: stated(head.summary, key) for name, key in _TOTALS.items()}


def _document(state: SinkState, standing: str, now: datetime) -> dict[str, Any]:
    facts = asdict(state)
    del facts["trouble"], facts["unverifiable"]
    age = None if state.committed_at is None else round((now - state.committed_at).total_seconds())
    return facts | {"offsets": parsed_offsets(state.offsets), "age_seconds": age, "standing": standing}


def _row(state: SinkState, standing: str, now: datetime) -> list[str]:
    return [
        sink_label(key_of(state)),
        state.branch,
        number(state.batch_id),
        moment(state.committed_at),
        "-" if state.committed_at is None else span(now - state.committed_at),
        number(state.batches),
        number(state.rows),
        size(state.bytes),
        moment(state.since) if state.batches or state.trouble is None else "-",
        standing,
    ]


def _ages(states: list[SinkState], max_age: timedelta | None, now: datetime) -> list[str]:
    """How long ago each sink wrote: nothing in a table says whether its query still runs."""
    told = [
        f"Last batch of sink {plain(state.sink)}: {ago(now - state.committed_at)}."
        for state in states
        if state.committed_at is not None
    ]
    streams = any(state.kind == SinkKind.STREAM.value for state in states)
    if streams and max_age is None:
        told.append("ok: the next batch would be accepted. To detect a stopped query, use --max-age '30 min'.")
    return told


def _hints(identifier: str, found: list[tuple[SinkState, str]]) -> list[str]:
    if not found:
        return [f"No lakesink stream has written to {identifier}. Next: check the name of the table and the catalog."]
    hints = [
        f"The next batch of sink {plain(state.sink)} would be refused: {standing}."
        f" Next: lakesink explain {state.trouble.name}"
        for state, standing in found
        if state.trouble is not None
    ]
    hints += [f"Sink {plain(state.sink)}: {said}" for state, _ in found for said in of_documents(state)]
    hints += [
        f"Sink {plain(state.sink)} has not committed for longer than --max-age. Next: check its query."
        for state, standing in found
        if standing == "stale"
    ]
    return [*hints, f"Next: lakesink log {identifier}"]
