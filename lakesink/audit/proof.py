"""What arrived, proved from the table alone: batches, files, summaries, ledgers, and what is no longer provable.

One load of the metadata; each manifest is read once; files are looked at many at a time. Nothing is written. What
others do to a table is no fault: compaction, deletes, expiry, rollbacks that were replayed. What the retained history
cannot show any more is said, not assumed.
"""

from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table import Table

from lakesink.audit import contents, data_files
from lakesink.audit.checkpoint import Done
from lakesink.audit.finding import Finding, Note
from lakesink.audit.leftovers import Leftovers, look_for_leftovers
from lakesink.audit.look import Look, key_of
from lakesink_catalog.read.counts import stated
from lakesink_catalog.read.history import SinkState
from lakesink_protocol.decoded import MALFORMED_ROWS, UNKNOWN_KEYS


@dataclass(frozen=True, slots=True)
class SinkProof:
    """One sink on its branch.

    Attributes:
        sink: Sink id, or application id.
        branch: Branch that it writes to.
        kind: ``stream`` or ``txn``.
        last: Last batch by the ledger; None if the ledger cannot be read and no mark is retained.
        oldest: Oldest batch on the branch's retained walk; None if none is retained.
        batches: Batches on the retained walk.
        rows: Rows that they added.
        since: When the oldest of them was committed.
        malformed_rows: Rows of NULLs, among the rows above, in place of documents that could not be decoded.
        unknown_keys: Members of their documents that the table had no column for.
    """

    sink: str
    branch: str
    kind: str
    last: int | None
    oldest: int | None
    batches: int
    rows: int
    since: datetime | None
    malformed_rows: int = 0
    unknown_keys: int = 0


@dataclass(frozen=True, slots=True)
class Proof:
    """What an audit looked at, and what it found.

    Attributes:
        sinks: Every sink that was looked at.
        findings: What must not be.
        notes: What there is to know besides.
        snapshots: Retained snapshots.
        files: Files that retained snapshots reference, each looked at.
        bytes: Their size in bytes, as stated.
        manifests: Manifests that were read.
        footers: True if row counts were compared with Parquet footers.
        leftovers: Own files that no snapshot references.
        unchecked: Files that could not be looked at.
    """

    sinks: tuple[SinkProof, ...]
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    snapshots: int
    files: int
    bytes: int
    manifests: int
    footers: bool
    leftovers: Leftovers
    unchecked: int


def audit(
    table: Table, *, done: Done | None = None, sink: str | None = None, footers: bool = True, now_ms: int | None = None
) -> Proof:
    """Prove what can be proved of a table.

    Args:
        table: As loaded.
        done: What a stream's checkpoint says, read before the table was loaded: a stream that runs goes on meanwhile.
            None to look at the table alone.
        sink: Only this sink's batches and ledger; files and manifests are looked at whole anyway.
        footers: True to compare row counts with Parquet footers: a request more for each file.
        now_ms: Wall clock, milliseconds since the epoch, to hold the table's last change against; None not to.

    Raises:
        SettingsError: There is no such sink.
        OSError: The storage failed.
    """
    look = Look.at(table, sink)
    entries = look.entries()
    faults = data_files.faults(table.io, entries, footers=footers)
    leftovers = look_for_leftovers(table, {entry.path for entry in entries}, look.ledgers())
    said = [
        *look.of_sinks(),
        *(look.of_clock(now_ms) if now_ms is not None else ()),
        *look.of_contents(),
        *data_files.findings(faults),
        *(look.of_checkpoint(done) if done is not None else ()),
        *look.of_history(),
        *leftovers.notes(),
    ]
    return Proof(
        sinks=tuple(_proof_of(look, state) for state in look.states),
        findings=tuple(one for one in said if isinstance(one, Finding)),
        notes=tuple(one for one in said if isinstance(one, Note)),
        snapshots=len(look.snapshots),
        files=len(entries),
        bytes=sum(entry.size_bytes for entry in entries),
        manifests=sum(1 for _ in look.inventory.known()),
        footers=footers,
        leftovers=leftovers,
        unchecked=sum(fault.code is None for fault in faults),
    )


def _proof_of(look: Look, state: SinkState) -> SinkProof:
    steps = look.steps(key_of(state))
    return SinkProof(
        sink=state.sink,
        branch=state.branch,
        kind=state.kind,
        last=state.batch_id,
        oldest=steps[0].mark.batch_id if steps else None,
        batches=len(steps),
        rows=sum(contents.added_rows(step.snapshot) for step in steps),
        since=state.since if steps else None,
        malformed_rows=sum(stated(step.snapshot.summary, MALFORMED_ROWS) or 0 for step in steps),
        unknown_keys=sum(stated(step.snapshot.summary, UNKNOWN_KEYS) or 0 for step in steps),
    )
