"""Checks that a checkpoint is readable, finds its newest batch, and asks whether the table would accept the next."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from pyiceberg.table import Table

from lakesink.checkpoint.folder import Checkpoint
from lakesink.sinks.iceberg.side.side_rollback import left_of, steps_of, with_left
from lakesink_catalog.read.history import sinks
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.locations import is_under
from lakesink_protocol.identity import Batch, SinkKey, SinkKind, digest
from lakesink_protocol.redact import redact
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, decide
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt
from lakesink_tools.checks.doctor.query import opened

_NOT_YET = "still unknown"


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The batch that Spark will run first when the query restarts."""

    batch: Batch  # without its end, and so without a fingerprint, if Spark has not planned it yet
    planned: bool  # True if its offsets are in the checkpoint, so that Spark runs the batch with these
    done: int | None  # newest batch that Spark completed; None if there is none


def check_checkpoint(root: str, table: Table | None) -> Iterator[Finding]:
    """Check the checkpoint at a path or URI, and its next batch if the query's target is given."""
    coming = coming_from(root)
    if isinstance(coming, Finding):
        yield coming
        return
    done = "no batch done" if coming.done is None else f"batch {coming.done} done"
    again = "comes again" if coming.planned else "comes next"
    found = f"{redact(root)}: query {coming.batch.query_id}, {done}, batch {coming.batch.batch_id} {again}"
    yield Finding(Part.CHECKPOINT, "readable", Standing.OK, found)
    yield from _place(root, table)
    if table is not None:
        yield attempt(Part.CHECKPOINT, "next batch", lambda: next_verdict(coming, table))


def next_batch(checkpoint: Checkpoint) -> NextBatch:
    """The query's next batch: its newest planned batch again, or the one after it if that is completed."""
    query_id = checkpoint.query_id()
    planned, done = (max(checkpoint.batches(log), default=None) for log in ("offsets", "commits"))
    if planned is None:
        return NextBatch(Batch(0, query_id, _NOT_YET, start=None, end=""), planned=False, done=done)
    end = checkpoint.offsets(planned)
    if planned == done:
        batch = Batch(planned + 1, query_id, _NOT_YET, start=digest(end.by_source), end="")
        return NextBatch(batch, planned=False, done=done)
    checkpoint.check_folders(end)
    return NextBatch(checkpoint.batch(query_id, planned, end), planned=True, done=done)


def coming_from(root: str) -> NextBatch | Finding:
    """The next batch of the checkpoint at a path or URI; a finding if it cannot be read."""
    fix = "Spark may still be able to read it. To check it here, install the fsspec package for its scheme."
    checkpoint = opened(root, Part.CHECKPOINT, "readable", Standing.SKIPPED, fix)
    if isinstance(checkpoint, Finding):
        return checkpoint
    return attempt(Part.CHECKPOINT, "readable", lambda: next_batch(checkpoint))


def is_taken(key: SinkKey, coming: NextBatch, table: Table) -> bool:
    """True if the batch is of this sink's query, and the table would accept it or has it."""
    own = _query_of(table, key) == coming.batch.query_id
    return own and not isinstance(decide(_situation(key, coming, table)), Refuse)


def next_verdict(coming: NextBatch, table: Table) -> Finding:
    """Whether the table would accept the batch, by the rules of a stream."""
    keys = [SinkKey(state.sink, state.branch) for state in sinks(table) if state.kind == SinkKind.STREAM.value]
    own = [key for key in keys if _query_of(table, key) == coming.batch.query_id]
    if own:
        return _of_sink(own[0], coming, table)
    fresh = _situation(SinkKey("lakesink-doctor"), coming, table)
    named = ", ".join(key.name for key in keys) or "none"
    found = f"batch {coming.batch.batch_id}: this checkpoint's query has not written to the table (its sinks: {named})"
    if fresh.iceberg_sink_epochs:
        last = fresh.iceberg_sink_epochs[0]
        found = f"batch {coming.batch.batch_id}: Iceberg's own sink has written this checkpoint's batches up to {last}"
        fix = "To continue with lakesink: lakesink adopt <table> --sink <a new id> --checkpoint <checkpoint>"
        return Finding(Part.CHECKPOINT, "next batch", Standing.FAILED, found, fix)
    if isinstance(decide(fresh), Commit):
        fix = "This is right for a new stream with its own sink id. Else give the checkpoint that belongs to the table."
        standing = Standing.WARNING if keys else Standing.OK
        return Finding(Part.CHECKPOINT, "next batch", standing, f"{found}; a new sink id would begin with it", fix)
    fix = "Give the checkpoint that belongs to this table, or the table that belongs to this checkpoint."
    return Finding(Part.CHECKPOINT, "next batch", Standing.FAILED, f"{found} and every sink id would be refused", fix)


def _place(root: str, table: Table | None) -> Iterator[Finding]:
    scheme = urlsplit(root).scheme
    path = urlsplit(root).path if scheme == "file" else root
    if scheme in ("", "file") and not os.access(path, os.W_OK):
        found = f"{path} cannot be written by this user."
        yield Finding(Part.CHECKPOINT, "place", Standing.WARNING, found, "Run the stream as its owner.")
    if table is not None and is_under(root if scheme else os.path.abspath(root), table.location()):  # noqa: PTH100 - links
        found = "It is in the table's own folder, where an orphan cleanup deletes files that no snapshot references."
        yield Finding(Part.CHECKPOINT, "place", Standing.WARNING, found, "Stop the stream and move it elsewhere.")
    remote = table is not None and urlsplit(table.location()).scheme not in ("", "file")
    if scheme in ("", "file") and remote:
        found = "It is on this machine, but the table is not: a driver on another machine cannot read it."
        fix = "Keep the checkpoint on storage that every driver reaches, if drivers run on several machines."
        yield Finding(Part.CHECKPOINT, "place", Standing.WARNING, found, fix)


def _of_sink(key: SinkKey, coming: NextBatch, table: Table) -> Finding:
    situation = _situation(key, coming, table)
    start = f"batch {coming.batch.batch_id} of sink {key.name}"
    left = list(left_of(table, key)) if situation.rolled_back else []
    match decide(situation):
        case Commit() if left:
            found = f"{start} would be committed, but {' '.join(one.said for one in left)}"
            return Finding(Part.CHECKPOINT, "next batch", Standing.FAILED, redact(found), redact(steps_of(left)))
        case Commit():
            return Finding(Part.CHECKPOINT, "next batch", Standing.OK, f"{start} would be committed")
        case Skip(snapshot_id=snapshot_id):
            found = f"{start} would be skipped: snapshot {snapshot_id} holds it"
            return Finding(Part.CHECKPOINT, "next batch", Standing.OK, found)
        case Refuse(reason=reason):
            error = with_left(refusal(reason, situation), left)
            found = f"{start} would be refused. [{error.code}] {error.what}"
            return Finding(Part.CHECKPOINT, "next batch", Standing.FAILED, redact(found), redact(error.action))


def _situation(key: SinkKey, coming: NextBatch, table: Table) -> Situation:
    return Situation(view_table(table, key), key, coming.batch, str(table.metadata.table_uuid))


def _query_of(table: Table, key: SinkKey) -> str | None:
    entry = view_table(table, key).entry
    return entry.query_id if entry else None
