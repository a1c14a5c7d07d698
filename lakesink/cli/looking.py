"""What the commands look at, turned into reports. Opens catalogs without making them, and only reads."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.table import Table

from lakesink.audit.finding import key_of, of_documents, sink_label
from lakesink.cli.output import NOT_WELL, OK, Report, ago, moment, number, plain, size, span
from lakesink.cli.rows import parsed_offsets
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import Record, SinkState, history, sinks
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.ledger import stated

_TOTALS = {"rows": "total-records", "files": "total-data-files", "bytes": "total-files-size"}


def status_report(identifier: str, catalog: str | None, max_age: timedelta | None) -> Report:
    """How each sink of a table stands; a last batch older than `max_age` is too old."""
    table = load_table(connect(catalog, create=False), identifier)
    now = datetime.now(UTC)
    states = sinks(table)
    standings = [_standing(state, max_age, now) for state in states]
    totals = _totals(table)
    return Report(
        document={
            "table": identifier,
            "catalog": table.catalog.name,
            "snapshots": len(table.metadata.snapshots),
            **totals,
            "sinks": [_sink_document(state, standing, now) for state, standing in zip(states, standings, strict=True)],
        },
        title=f"{identifier} in {table.catalog.name}: {number(totals['rows'])} rows, {number(totals['files'])} files,"
        f" {size(totals['bytes'])}, {number(len(table.metadata.snapshots))} snapshots",
        columns=(
            "sink",
            "branch",
            "last batch>",
            "committed",
            "ago>",
            "batches>",
            "rows>",
            "size>",
            "since",
            "standing",
        ),
        rows=[_sink_row(state, standing, now) for state, standing in zip(states, standings, strict=True)],
        hints=[*_ages(states, max_age, now), *_status_hints(identifier, states, standings)],
        exit_code=OK if states and all(standing in _WELL for standing in standings) else NOT_WELL,
    )


def log_report(identifier: str, catalog: str | None, *, sink: str | None, branch: str | None, limit: int) -> Report:
    """The newest batches of a table."""
    table = load_table(connect(catalog, create=False), identifier)
    records = history(table, sink=sink, branch=branch)
    shown = records[-limit:]
    return Report(
        document={
            "table": identifier,
            "catalog": table.catalog.name,
            "retained": len(records),
            "batches": [_record_document(record) for record in shown],
        },
        title=f"{identifier} in {table.catalog.name}: {number(len(shown))} of {number(len(records))} retained batches",
        columns=(
            "sink",
            "branch",
            "batch>",
            "snapshot>",
            "rows>",
            "files>",
            "size>",
            "committed",
            "outcome",
            "offsets",
        ),
        rows=[_record_row(record) for record in shown],
        hints=_log_hints(identifier, shown, hidden=len(records) - len(shown)),
        exit_code=OK if records else NOT_WELL,
    )


_WELL = ("ok", "unproven")


def _standing(state: SinkState, max_age: timedelta | None, now: datetime) -> str:
    """One word: ``ok``, ``unproven``, ``stale``, or what the next batch would be refused for."""
    if state.trouble is not None:
        return state.trouble.value
    if max_age is not None and (state.committed_at is None or now - state.committed_at > max_age):
        return "stale"
    return "unproven" if state.unproven else "ok"


def _totals(table: Table) -> dict[str, int | None]:
    head = table.metadata.current_snapshot()
    if head is None:
        return dict.fromkeys(_TOTALS, 0)
    return {name: stated(head.summary, key) for name, key in _TOTALS.items()}


def _sink_document(state: SinkState, standing: str, now: datetime) -> dict[str, Any]:
    facts = asdict(state)
    del facts["trouble"], facts["unproven"]
    age = None if state.committed_at is None else round((now - state.committed_at).total_seconds())
    return facts | {"offsets": parsed_offsets(state.offsets), "age_seconds": age, "standing": standing}


def _sink_row(state: SinkState, standing: str, now: datetime) -> list[str]:
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
        told.append("ok: the next batch would be taken. Whether a query runs is asked by --max-age '30 min'.")
    return told


def _status_hints(identifier: str, states: list[SinkState], standings: list[str]) -> list[str]:
    if not states:
        return [f"No lakesink stream has written to {identifier}. Next: check the name of the table and the catalog."]
    hints = [
        f"The next batch of sink {plain(state.sink)} would be refused: {standing}. The refusal will say what to do."
        for state, standing in zip(states, standings, strict=True)
        if state.trouble is not None
    ]
    hints += [f"Sink {plain(state.sink)}: {said}" for state in states for said in of_documents(state)]
    hints += [
        f"Sink {plain(state.sink)} has not committed for longer than --max-age. Next: look at its query."
        for state, standing in zip(states, standings, strict=True)
        if standing == "stale"
    ]
    return [*hints, f"Next: lakesink log {identifier}"]


def _record_document(record: Record) -> dict[str, Any]:
    return asdict(record) | {"offsets": parsed_offsets(record.offsets)}


def _record_row(record: Record) -> list[str]:
    rolled_back = ", rolled back" if record.in_branch is False else ""
    without = f", {record.missing_inputs} input files missing" if record.missing_inputs else ""
    return [
        sink_label(key_of(record)),
        record.branch,
        number(record.batch_id),
        str(record.snapshot_id),
        number(record.rows),
        number(record.files),
        size(record.bytes),
        moment(record.committed_at),
        (record.accepted or record.outcome) + without + rolled_back + _of_documents(record),
        record.offsets,
    ]


def _of_documents(record: Record) -> str:
    malformed = f", {number(record.malformed_rows)} malformed" if record.malformed_rows else ""
    return malformed + (f", {number(record.unknown_keys)} unknown keys" if record.unknown_keys else "")


def _log_hints(identifier: str, shown: list[Record], *, hidden: int) -> list[str]:
    if not shown:
        return [f"No batch of lakesink is retained in {identifier}. Next: lakesink status {identifier}"]
    older = [f"{number(hidden)} older batches are not shown; --limit shows more."] if hidden else []
    newest = shown[-1].snapshot_id
    return [*older, f"Next: read the table as of a batch by its snapshot, for example VERSION AS OF {newest} in Spark."]
