"""A table as of a batch, a time or a tag, from one version of its metadata; reads rows on request."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakesink_catalog.read.history import sinks
from lakesink_catalog.read.past import PastCommit, by_sink, check_branch, retained
from lakesink_catalog.tables.tables import parse_identifier
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey
from lakesink_tools.past.kept_nulls import kept_nulls
from lakesink_tools.past.lean import storage_of
from lakesink_tools.past.lean_json import LeanSnapshot
from lakesink_tools.past.records import key_of
from lakesink_tools.past.resolve_snapshot import Chosen, LookBack, by_batch, by_tag, by_time, queries

if TYPE_CHECKING:
    import pyarrow as pa


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

    commit: PastCommit
    batches: dict[SinkKey, int]  # the newest batch of each sink in the snapshot, as far as known
    tags: tuple[str, ...]  # tags that point at the snapshot, sorted by name
    moving: tuple[str, ...]  # those of them that lakesink moves with the next batch
    note: str  # explains an answer that is not exact; else empty
    queries: dict[str, str]  # SQL by engine name


def look_back(table: Table, identifier: str, branch: str = MAIN_BRANCH) -> LookBack:
    """Collect what the table's metadata still shows of a branch."""
    metadata, refs = table.metadata, table.metadata.refs
    check_branch(table, branch)
    tags = {name: ref.snapshot_id for name, ref in refs.items() if ref.snapshot_ref_type is SnapshotRefType.TAG}
    found = retained(table)
    last = {key: max(batch.batch_id for batch in batches) for key, batches in by_sink(found.commits).items()}
    last |= {key_of(state): state.batch_id for state in sinks(table, found) if state.batch_id is not None}
    heads = [(entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log]
    if branch != MAIN_BRANCH:  # only main has a snapshot log
        under = found.ancestry(refs[branch].snapshot_id)
        heads = [(commit.snapshot.timestamp_ms, commit.snapshot_id) for commit in under][::-1]
    return LookBack(identifier, branch, found, last, heads, tags)


def as_of(table: Table, identifier: str, question: Question) -> AsOf:
    """Answer a question about the table's past."""
    past = look_back(table, identifier, question.branch)
    chosen = choose(past, question)
    commit = chosen.commit
    tags = sorted(name for name, snapshot_id in past.tags.items() if snapshot_id == commit.snapshot_id)
    moves = {key.ledger_tag for key in past.last}
    lasting = [name for name in tags if name not in moves]
    preferred = question.tag if question.tag in lasting else next(iter(lasting), None)
    return AsOf(
        commit=commit,
        batches=past.batches(commit.snapshot_id),
        tags=tuple(tags),
        moving=tuple(name for name in tags if name in moves),
        note=chosen.note,
        queries=queries(parse_identifier(identifier), table.metadata_location, commit.snapshot_id, preferred),
    )


def choose(past: LookBack, question: Question) -> Chosen:
    """Return the snapshot that answers the question."""
    if question.batch_id is not None:
        return by_batch(past, question.batch_id, question.sink)
    if question.time is not None:
        return by_time(past, int(question.time.timestamp() * 1000))
    assert question.tag is not None, "a question asks for a batch, a time or a tag"
    return by_tag(past, question.tag)


def read(table: Table, snapshot_id: int, limit: int) -> "pa.Table":
    """Read at most `limit` rows of a snapshot, in the schema that it was committed with."""
    with deletes_named(snapshot_id), kept_nulls():
        return at_snapshot(table, snapshot_id).scan(snapshot_id=snapshot_id, limit=limit).to_arrow()


@contextmanager
def deletes_named(snapshot_id: int) -> Iterator[None]:
    """Wrap a scan of a snapshot: PyIceberg applies positional deletes, but not equality deletes."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        if "equality delete" not in str(error):
            raise
        raise CatalogError.of("DELETES_UNSUPPORTED", snapshot_id=snapshot_id) from error


def at_snapshot(table: Table, snapshot_id: int) -> Table:
    """A table from `load_to_read` with one snapshot, as PyIceberg needs it to scan it."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None, "the caller found it in the metadata"
    found = snapshot.whole() if isinstance(snapshot, LeanSnapshot) else snapshot
    metadata = table.metadata.model_copy(update={"snapshots": [found]})
    return Table(table.name(), metadata, table.metadata_location, storage_of(table), table.catalog, table.config)
