"""What the commands look at, of the directory of a sink of files, turned into reports. Only reads."""

from datetime import UTC, datetime, timedelta
from typing import Any

from lakesink.sinks.directory.directory_errors import directory_failures
from lakesink.sinks.directory.marker import Marker
from lakesink_catalog.read.history import silence_limit
from lakesink_catalog.words import age, counted, moment, number, size
from lakesink_protocol.redact import redact
from lakesink_tools.audit.directory import SinkInDirectory, committed_at, sinks_in, waiting_in
from lakesink_tools.cli.output import NOT_WELL, OK, Report, invalid
from lakesink_tools.cli.rows import parsed_offsets
from lakesink_tools.cli.sink_health import STALE, SinkHealth, prepared_hint, stale_hint, staleness

COLUMNS = ("sink", "last batch>", "committed", "ago>", "batches>", "rows>", "size>")
"""Headings of `state_row`."""
_LOG_COLUMNS = ("sink", "batch>", "commit>", "rows>", "files>", "size>", "committed", "outcome", "offsets")


def status_of_directory(directory: str, max_age: timedelta | None) -> Report:
    """How each sink of a directory stands; a last batch older than `max_age` is too old."""
    now = datetime.now(UTC)
    storage, sinks = sinks_in(directory, None)
    with directory_failures(directory):
        waiting = {found.name: waiting_in(storage, found) for found in sinks}
    standings = [(found, _standing(found, max_age, now)) for found in sinks]
    hints = [
        f"The commits of sink {found.name} are damaged: {found.damage}. Next: lakesink audit {directory}"
        for found in sinks
        if found.damage
    ]
    hints += [prepared_hint(name, batch_id) for name, batch_ids in waiting.items() for batch_id in batch_ids]
    hints += [
        stale_hint(found.name, committed_at(found.markers[-1]) if found.markers else None, max_age, now)
        for found, standing in standings
        if standing.word == STALE
    ]
    return Report(
        document={
            "directory": redact(directory),
            "sinks": [
                state_of(found) | {"standing": standing.word, "prepared": waiting[found.name]}
                for found, standing in standings
            ],
        },
        title=f"{redact(directory)}: {counted(len(sinks), 'sink')}",
        columns=(*COLUMNS, "standing"),
        rows=[[*state_row(found, now), standing.word] for found, standing in standings],
        hints=[redact(hint) for hint in (*hints, f"Next: lakesink log {directory}")],
        exit_code=OK if all(standing.is_well for _, standing in standings) else NOT_WELL,
    )


def log_of_directory(directory: str, *, sink: str | None, branch: str | None, limit: int) -> Report:
    """The newest batches of a directory, the newest of each sink last."""
    if branch is not None:
        raise invalid("--branch names a branch of a table, and this is a directory.", "Leave --branch out.")
    _, sinks = sinks_in(directory, sink)
    records = [(found.name, marker) for found in sinks for marker in found.markers]
    shown = records[-limit:]
    hidden = len(records) - len(shown)
    return Report(
        document={
            "directory": redact(directory),
            "committed": len(records),
            "batches": [_record(name, marker) for name, marker in shown],
        },
        title=f"{redact(directory)}: {number(len(shown))} of {counted(len(records), 'committed batch')}",
        columns=_LOG_COLUMNS,
        rows=[_record_row(name, marker) for name, marker in shown],
        hints=[f"Not shown: {counted(hidden, 'older batch')}; --limit shows more."] if hidden else [],
        exit_code=OK if records else NOT_WELL,
    )


def _standing(found: SinkInDirectory, max_age: timedelta | None, now: datetime) -> SinkHealth:
    if found.damage:
        return SinkHealth("LedgerDamaged", is_well=False)
    times = [when for when in map(committed_at, found.markers) if when is not None]
    last = committed_at(found.markers[-1]) if found.markers else None
    return staleness(last, silence_limit(times), max_age, now) or SinkHealth("ok", is_well=True)


def state_of(found: SinkInDirectory) -> dict[str, Any]:
    """One sink for JSON."""
    newest = found.markers[-1] if found.markers else None
    return {
        "sink": found.name,
        "batch_id": None if newest is None else newest.ledger_batch_id,
        "query_id": None if newest is None else newest.batch.query_id,
        "committed_at": None if newest is None else committed_at(newest),
        "batches": len(found.markers),
        "rows": sum(marker.rows for marker in found.markers),
        "files": sum(len(marker.parts) for marker in found.markers),
        "bytes": sum(marker.size_bytes for marker in found.markers),
        "offsets": None if newest is None else parsed_offsets(newest.batch.offsets),
    }


def state_row(found: SinkInDirectory, now: datetime) -> list[str]:
    """One sink as text, under `COLUMNS`."""
    state = state_of(found)
    last = state["committed_at"]
    return [
        found.name,
        number(state["batch_id"]),
        "-" if last is None else moment(last),
        age(last, now),
        number(state["batches"]),
        number(state["rows"]),
        size(state["bytes"]),
    ]


def _record(name: str, marker: Marker) -> dict[str, Any]:
    return {
        "sink": name,
        "batch_id": marker.batch.batch_id,
        "commit": marker.number,
        "query_id": marker.batch.query_id,
        "rows": marker.rows,
        "files": len(marker.parts),
        "bytes": marker.size_bytes,
        "committed_at": committed_at(marker),
        "outcome": marker.outcome,
        "accepted": marker.accepted,
        "offsets": parsed_offsets(marker.batch.offsets),
    }


def _record_row(name: str, marker: Marker) -> list[str]:
    when = committed_at(marker)
    return [
        name,
        number(marker.batch.batch_id),
        number(marker.number),
        number(marker.rows),
        number(len(marker.parts)),
        size(marker.size_bytes),
        "-" if when is None else moment(when),
        marker.accepted or marker.outcome,
        marker.batch.offsets,
    ]
