"""What the commands look at, of the directory of a sink of files, turned into reports. Only reads."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lakesink.audit.checkpoint import read_done
from lakesink.audit.directory import DirectoryProof, SinkInDirectory, audit_directory, committed_at, sinks_in
from lakesink.audit.finding import Code, counted
from lakesink.cli.output import NOT_WELL, OK, Report, invalid, moment, number, printable, size, span
from lakesink.cli.proving import documents_of, exit_code, told, verdict_on, words_for
from lakesink.cli.rows import parsed_offsets
from lakesink.sinks.directory.layout import FOLDER
from lakesink.sinks.directory.marker import Marker
from lakesink_protocol.redact import redact

_DIRECTORY_WORDS = {
    Code.LEDGER_DAMAGED: (
        "A commit is missing, torn, changed or out of its order: readers and the stream stop.",
        "Put its file back from a backup, or take the directory back to a batch before it (lakesink rewind).",
    ),
    Code.BATCH_TWICE: (
        "One batch was committed twice: its rows are there twice.",
        "Take the directory back to the batch before the second one (lakesink rewind), and let the stream go on.",
    ),
    Code.BATCH_GAP: (
        "Batches are missing between two that are there.",
        "Take the directory back to the batch before the gap (lakesink rewind), or replay them from the source.",
    ),
    Code.CHECKPOINT_AHEAD: (
        "Spark calls batches done that the directory does not have: their rows are not in it.",
        "Stop the stream, run lakesink rewind with the newest batch that is in the directory, and start it again.",
    ),
}


def is_directory(target: str, catalog: str | None) -> bool:
    """A name of a table has no slash; a folder's that has none is known by what is in it. It is in no catalog."""
    found = "/" in target or (Path(target) / FOLDER).is_dir()
    if found and catalog is not None:
        raise invalid("--catalog names the catalog of a table, and this is a directory.", "Leave --catalog out.")
    return found


def status_of_directory(directory: str, max_age: timedelta | None) -> Report:
    """How each sink of a directory stands; a last batch older than `max_age` is too old."""
    now = datetime.now(UTC)
    _, sinks = sinks_in(directory, None)
    standings = [_standing(found, max_age, now) for found in sinks]
    hints = [
        f"The commits of sink {found.name} cannot be trusted: {found.damage}. Next: lakesink audit {directory}"
        for found in sinks
        if found.damage
    ]
    return Report(
        document={
            "directory": redact(directory),
            "sinks": [_state(found, standing) for found, standing in zip(sinks, standings, strict=True)],
        },
        title=printable(f"{redact(directory)}: {counted(len(sinks), 'sink')}"),
        columns=("sink", "last batch>", "committed", "ago>", "batches>", "rows>", "size>", "standing"),
        rows=[_state_row(found, standing, now) for found, standing in zip(sinks, standings, strict=True)],
        hints=[printable(redact(hint)) for hint in (*hints, f"Next: lakesink log {directory}")],
        exit_code=OK if all(standing == "ok" for standing in standings) else NOT_WELL,
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
        title=printable(f"{redact(directory)}: {number(len(shown))} of {number(len(records))} committed batches"),
        columns=("sink", "batch>", "commit>", "rows>", "files>", "size>", "committed", "outcome", "offsets"),
        rows=[_record_row(name, marker) for name, marker in shown],
        hints=[f"{number(hidden)} older batches are not shown; --limit shows more."] if hidden else [],
        exit_code=OK if records else NOT_WELL,
    )


def audit_of_directory(directory: str, *, checkpoint: str | None, sink: str | None) -> Report:
    """What arrived, proved from the directory, and from Spark's checkpoint if it is named."""
    done = read_done(checkpoint) if checkpoint is not None else None
    proof = audit_directory(directory, sink=sink, done=done)
    batches = counted(sum(len(found.markers) for found in proof.sinks), "batch")
    clean = f"clean: {batches}, each there once, with all files"
    return Report(
        document={
            "directory": redact(directory),
            "well": not proof.findings,
            "sinks": [_state(found, "") for found in proof.sinks],
            **documents_of(proof.findings, proof.notes, _DIRECTORY_WORDS),
        },
        title=printable(f"{redact(directory)}: {verdict_on(proof.findings) or clean}"),
        columns=("sink", "last batch>", "committed", "ago>", "batches>", "rows>", "size>"),
        rows=[_state_row(found, "", datetime.now(UTC))[:-1] for found in proof.sinks],
        hints=[printable(redact(line)) for line in _lines(proof)],
        exit_code=exit_code(proof.findings),
    )


def _lines(proof: DirectoryProof) -> Iterator[str]:
    for finding in proof.findings:
        means, action = words_for(finding.code, _DIRECTORY_WORDS)
        yield f"[{finding.code.name}] {told(finding)}"
        yield f"  It means: {means}"
        yield f"  Do: {action}"
    for note in proof.notes:
        yield f"note: {told(note)}"
    markers = [marker for found in proof.sinks for marker in found.markers]
    files = sum(len(marker.parts) for marker in markers)
    yield f"Looked at {counted(len(markers), 'commit')}, and sizes of {counted(files, 'file')}."


def _standing(found: SinkInDirectory, max_age: timedelta | None, now: datetime) -> str:
    if found.damage:
        return "LedgerDamaged"
    last = committed_at(found.markers[-1]) if found.markers else None
    return "stale" if max_age is not None and (last is None or now - last > max_age) else "ok"


def _state(found: SinkInDirectory, standing: str) -> dict[str, Any]:
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
    } | ({"standing": standing} if standing else {})


def _state_row(found: SinkInDirectory, standing: str, now: datetime) -> list[str]:
    state = _state(found, standing)
    last = state["committed_at"]
    return [
        found.name,
        number(state["batch_id"]),
        "-" if last is None else moment(last),
        "-" if last is None else span(now - last),
        number(state["batches"]),
        number(state["rows"]),
        size(state["bytes"]),
        standing,
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
