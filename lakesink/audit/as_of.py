"""A table as of a batch, a time or a tag, from one version of its metadata; reads rows on request."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from lakesink.audit.engines import queries
from lakesink.audit.scans import deletes_named
from lakesink.audit.which import Chosen, Past, by_batch, by_tag, by_time, key_of
from lakesink_catalog.read.counts import stated
from lakesink_catalog.read.history import history, sinks, time_of
from lakesink_catalog.tables.tables import parse_identifier
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey, SinkKind
from lakesink_protocol.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class Question:
    """Asks for one of batch, time or tag."""

    batch_id: int | None = None  # or a version of a transaction application
    time: datetime | None = None  # with a time zone
    tag: str | None = None
    sink: str | None = None  # may be None if the table has one sink
    branch: str = MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class AsOf:
    """One snapshot of a table, and how to read it."""

    snapshot_id: int
    committed_at: datetime  # in UTC
    rows: int | None  # at that time; None if the summary does not state it
    batches: dict[SinkKey, int]  # the newest batch of each sink in the snapshot, as far as known
    tags: tuple[str, ...]  # tags that point at the snapshot, sorted by name
    moving: tuple[str, ...]  # those of them that lakesink moves with the next batch
    note: str  # explains an answer that is not exact; else empty
    queries: dict[str, str]  # SQL by engine name


def look_back(table: Table, identifier: str, branch: str = MAIN_BRANCH) -> Past:
    """Collect what the table's metadata still shows of a branch."""
    _check_branch(table, identifier, branch)
    records = history(table)
    last: dict[SinkKey, int] = {}
    for record in records:
        last[key_of(record)] = max(record.batch_id, last.get(key_of(record), -1))
    for state in sinks(table):
        if state.batch_id is not None:
            last[SinkKey(state.sink, state.branch, SinkKind(state.kind))] = state.batch_id
    metadata = table.metadata
    past = Past(
        table=identifier,
        branch=branch,
        records=records,
        last=last,
        snapshots={snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots},
        heads=[(entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log],
        tags={name: ref.snapshot_id for name, ref in metadata.refs.items() if _is_tag(ref.snapshot_ref_type)},
    )
    return past if branch == MAIN_BRANCH else _of_branch(past, metadata.refs[branch].snapshot_id)


def as_of(table: Table, identifier: str, question: Question) -> AsOf:
    """Answer a question about the table's past."""
    past = look_back(table, identifier, question.branch)
    chosen = choose(past, question)
    snapshot = past.snapshots[chosen.snapshot_id]
    tags = sorted(name for name, snapshot_id in past.tags.items() if snapshot_id == chosen.snapshot_id)
    moves = {key.ledger_tag for key in past.last}
    lasting = [name for name in tags if name not in moves]
    preferred = question.tag if question.tag in lasting else next(iter(lasting), None)
    return AsOf(
        snapshot_id=chosen.snapshot_id,
        committed_at=committed_at(snapshot),
        rows=_rows(snapshot),
        batches=past.batches(chosen.snapshot_id),
        tags=tuple(tags),
        moving=tuple(name for name in tags if name in moves),
        note=chosen.note,
        queries=queries(parse_identifier(identifier), table.metadata_location, chosen.snapshot_id, preferred),
    )


def choose(past: Past, question: Question) -> Chosen:
    """Return the snapshot that answers the question."""
    if question.batch_id is not None:
        return by_batch(past, question.batch_id, question.sink)
    if question.time is not None:
        return by_time(past, int(question.time.timestamp() * 1000))
    assert question.tag is not None, "a question asks for a batch, a time or a tag"
    return by_tag(past, question.tag)


def read(table: Table, snapshot_id: int, limit: int) -> pa.Table:
    """Read at most `limit` rows of a snapshot, in the schema that it was committed with."""
    with deletes_named(snapshot_id):
        return table.scan(snapshot_id=snapshot_id, limit=limit).to_arrow()


def committed_at(snapshot: Snapshot) -> datetime:
    """Commit time in UTC, by the clock of the committing process."""
    return time_of(snapshot.timestamp_ms)


def _check_branch(table: Table, identifier: str, branch: str) -> None:
    refs = table.metadata.refs
    branches = {name for name, ref in refs.items() if not _is_tag(ref.snapshot_ref_type)} | {MAIN_BRANCH}
    if branch in branches:
        return
    raise CatalogError(
        "BRANCH_MISSING",
        f"{identifier} has no branch {branch[:60]!r}.",
        data="Nothing was changed: this command only reads.",
        action=did_you_mean(branch, branches),
    )


def _is_tag(kind: SnapshotRefType) -> bool:
    return kind is SnapshotRefType.TAG


def _of_branch(past: Past, head: int) -> Past:
    """Only main has a snapshot log; for another branch its ancestry replaces the log."""
    chain = [(snapshot.timestamp_ms, snapshot.snapshot_id) for snapshot in past.ancestry(head)][::-1]
    return Past(past.table, past.branch, past.records, past.last, past.snapshots, chain, past.tags)


def _rows(snapshot: Snapshot) -> int | None:
    return stated(snapshot.summary, "total-records")
