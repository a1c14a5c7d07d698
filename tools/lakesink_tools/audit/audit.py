"""Audits a table from its metadata and files: batches, files, summaries, ledgers, and what is no longer provable.

The metadata is loaded once, each manifest is read once, and many files are checked at a time. Nothing is written.
Compaction, deletes, expiry and replayed rollbacks are no violations. What the retained history no longer shows is
reported as unknown, not assumed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table import Table

from lakesink_catalog.read.history import SinkState, total_changes
from lakesink_catalog.words import counted, number
from lakesink_protocol.row_changes import ChangeCounts
from lakesink_tools.audit import data_files
from lakesink_tools.audit.checkpoint import Done
from lakesink_tools.audit.finding import Finding, Note, told, verdict_on
from lakesink_tools.audit.key_proof import KeyProof
from lakesink_tools.audit.leftovers import Leftovers, look_for_leftovers
from lakesink_tools.audit.scan import TableScan
from lakesink_tools.past.html import MOST_ROWS, page
from lakesink_tools.past.records import key_of


@dataclass(frozen=True, slots=True)
class SinkProof:
    """One sink on its branch."""

    sink: str  # sink id, or application id
    branch: str
    kind: str  # ``stream`` or ``txn``
    last: int | None  # by the ledger; None if it cannot be read and no mark is retained
    oldest: int | None  # oldest batch in the retained ancestry; None if there is none
    batches: int  # number of batches in the retained ancestry
    rows: int  # rows that these batches added
    since: datetime | None  # commit time of the oldest of them
    unknown_keys: int = 0  # values in documents without a column in the table
    unmet_rows: int = 0  # rows that did not meet an expectation of the query
    dead_letters: int = 0  # rows that are in the table of dead letters instead
    rescued_rows: int = 0  # rows, included in `rows`, with a text in the rescue column
    changes: ChangeCounts | None = None  # by key; None if all batches appended


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of an audit."""

    sinks: tuple[SinkProof, ...]
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    snapshots: int
    files: int  # referenced files, each checked
    bytes: int  # size of these files, as stated
    manifests: int  # number of manifests read
    footers: bool  # True if row counts were compared with Parquet footers
    leftovers: Leftovers  # own files that no snapshot references
    unchecked: int  # files that could not be checked
    history_kept: bool  # False if the catalog keeps no snapshots before its newest
    keys: KeyProof | None = None  # None if the keys were not asked for

    def _repr_html_(self) -> str:
        """The result as a notebook shows it."""
        findings = self.findings[:MOST_ROWS]
        hidden = len(self.findings) - len(findings)
        lines = [f"[{finding.code.name}] {told(finding)} {finding.code.action}" for finding in findings]
        lines += [f"{counted(hidden, 'more finding')}; .findings has all."] if hidden else []
        notes = [f"note: {told(note)}" for note in self.notes]
        rows = [
            (sink_in_words(one), one.branch, *map(number, (one.last, one.oldest, one.batches, one.rows)))
            for one in self.sinks
        ]
        columns = ("sink", "branch", "last batch>", "retained from>", "batches>", "rows>")
        return page(f"Audit: {verdict_of(self)}", columns, rows, [*lines, *notes])


def audit(
    table: Table,
    *,
    done: Done | None = None,
    sink: str | None = None,
    footers: bool = True,
    now_ms: int | None = None,
    prove_keys: Callable[[Table], KeyProof] | None = None,
) -> Proof:
    """Prove what can be proved of a table. Raises an OSError if the storage failed.

    A running stream commits, so its checkpoint, `done`, is read before the table is loaded. `sink` limits batches and
    ledgers; files and manifests are always checked completely. Parquet footers cost one more request for each file. The
    wall clock `now_ms` is compared with the table's last change, unless it is None. `prove_keys` reads the key columns
    of all data files.
    """
    scan = TableScan.at(table, sink)
    entries = scan.entries()
    faults = data_files.faults(table.io, entries, footers=footers)
    leftovers = look_for_leftovers(table, (entry.path for entry in entries), scan.ledgers())
    keys = prove_keys(table) if prove_keys is not None else None
    said = [
        *scan.of_sinks(done),
        *(scan.of_clock(now_ms) if now_ms is not None else ()),
        *scan.of_contents(),
        *scan.of_side_tables(),
        *data_files.findings(faults),
        *(keys.findings() if keys is not None else ()),
        *(scan.of_checkpoint(done) if done is not None else ()),
        *scan.of_history(),
        *leftovers.notes(),
    ]
    return Proof(
        sinks=tuple(_proof_of(scan, state) for state in scan.states),
        findings=tuple(one for one in said if isinstance(one, Finding)),
        notes=tuple(one for one in said if isinstance(one, Note)),
        snapshots=len(scan.retained.by_id),
        files=len(entries),
        bytes=sum(entry.size_bytes for entry in entries),
        manifests=sum(1 for _ in scan.inventory.known()),
        footers=footers,
        leftovers=leftovers,
        unchecked=sum(fault.code is None for fault in faults),
        history_kept=scan.history_kept,
        keys=keys,
    )


def _proof_of(scan: TableScan, state: SinkState) -> SinkProof:
    batches = scan.batches(key_of(state))
    return SinkProof(
        sink=state.sink,
        branch=state.branch,
        kind=state.kind,
        last=state.batch_id,
        oldest=batches[0].batch_id if batches else None,
        batches=len(batches),
        rows=sum(batch.rows for batch in batches),
        since=state.since if batches else None,
        unknown_keys=sum(batch.unknown_keys for batch in batches),
        unmet_rows=sum(batch.unmet_rows for batch in batches),
        dead_letters=sum(batch.dead_letters for batch in batches),
        rescued_rows=sum(batch.rescued_rows for batch in batches),
        changes=total_changes(batches),
    )


def verdict_of(proof: Proof) -> str:
    """The result of the audit of a table, in one line."""
    if proof.findings:
        return verdict_on(proof.findings, proof.unchecked)
    if not proof.sinks:
        return "no lakesink stream has written to it"
    if proof.unchecked:
        return f"no finding, but {counted(proof.unchecked, 'file')} could not be checked"
    if not proof.history_kept:
        return "not proven: the catalog keeps no earlier snapshots, so only the newest one was checked"
    batches = counted(sum(found.batches for found in proof.sinks), "batch")
    return f"clean: {batches}, each there once, whole and readable"


def sink_in_words(found: SinkProof) -> str:
    """A sink as every command shows it."""
    return found.sink if found.kind == "stream" else f"{found.sink} (txn)"
