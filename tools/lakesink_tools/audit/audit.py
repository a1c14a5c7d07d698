"""Audits a table from its metadata and files: batches, files, summaries, ledgers, and what is no longer provable.

The metadata is loaded once, each manifest is read once, and many files are checked at a time. Nothing is written.
Compaction, deletes, expiry and replayed rollbacks are no violations. What the retained history no longer shows is
reported as unknown, not assumed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.catalog_failures import catalog_error
from lakesink_catalog.read.history import SinkState, total_changes
from lakesink_catalog.tables.tables import TABLE_MISSING
from lakesink_catalog.words import counted, number
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.measures import Tally
from lakesink_protocol.redact import safe_cause
from lakesink_protocol.row_changes import ChangeCounts
from lakesink_tools.audit import data_files
from lakesink_tools.audit.checkpoint import Done, read_done
from lakesink_tools.audit.finding import Finding, Note, told, verdict_on
from lakesink_tools.audit.key_proof import KeyProof, KeyQuestion
from lakesink_tools.audit.leftovers import Leftovers, look_for_leftovers
from lakesink_tools.audit.scan import TableScan
from lakesink_tools.past.html import MOST_ROWS, page
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.need_duckdb import check_duckdb
from lakesink_tools.past.records import key_of

COLUMNS = ("sink", "branch", "last batch>", "retained from>", "batches>")
"""Headings of `row_of`, without that of the rows."""


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
        columns = (*COLUMNS, "rows>")
        return page(f"Audit: {verdict_of(self)}", columns, [row_of(one) for one in self.sinks], [*lines, *notes])


def audit_table(
    table: str,
    *,
    catalog: str | None = None,
    catalog_properties: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
    sink: str | None = None,
    footers: bool = True,
    keys: bool | Sequence[str] = False,
) -> Proof:
    """Prove from a table alone that every batch is there once, whole and readable; ``lakesink audit`` as a function.

    Args:
        table: Table identifier, ``namespace.table``.
        catalog: Name of a PyIceberg catalog; None for the configured default, else the embedded one.
        catalog_properties: Added to the configured properties; they take precedence.
        checkpoint: Spark's checkpoint: is every batch that it records as completed in the table?
        sink: Only this sink's batches and ledger.
        footers: False to compare sizes only, and not row counts with Parquet footers.
        keys: True to prove also that each key has one live row on main; or the columns of the key, if the table has no
            identifier fields. Needs DuckDB.

    Returns:
        The result: `findings` is empty if nothing is wrong. A notebook shows it as a table.

    Raises:
        SettingsError: The identifier is malformed.
        CatalogError: The catalog or the storage is unusable, or there is no such table.
        QueryError: The checkpoint cannot be read.
    """
    named = () if isinstance(keys, bool) else tuple(keys)
    question = KeyQuestion(named) if keys else None
    found = connect(catalog, catalog_properties, create=False)
    return audit_of(found, table, checkpoint=checkpoint, sink=sink, footers=footers, keys=question)


def audit_of(
    catalog: Catalog, table: str, *, checkpoint: str | None, sink: str | None, footers: bool, keys: KeyQuestion | None
) -> Proof:
    """Audit a table of a catalog by its name; see `audit_table`."""
    prove_keys = None
    if keys is not None:
        check_duckdb("lakesink audit --keys")
        from lakesink_tools.audit import key_scan  # noqa: PLC0415 - DuckDB is an extra

        prove_keys = partial(key_scan.prove_keys, question=keys)
    done = None if checkpoint is None else read_done(checkpoint)
    loaded = _loaded(catalog, table, done)
    now_ms = time.time_ns() // 1_000_000
    try:
        return audit(loaded, done=done, sink=sink, footers=footers, now_ms=now_ms, prove_keys=prove_keys)
    except OSError as error:
        failure = error  # leaves only if it shows no secret, so not as a context
    known = loaded.io.properties
    raise catalog_error(failure, "The table", known) from safe_cause(failure, known)


def _loaded(catalog: Catalog, table: str, done: Done | None) -> Table:
    """The table to audit. If it is missing, the checkpoint shows whether it ever was there."""
    try:
        return load_to_read(catalog, table)
    except CatalogError as error:
        if error.code != TABLE_MISSING or done is None or not done.batches:
            raise
        raise CatalogError.of(
            "TABLE_MISSING.audited", table=table, catalog=catalog.name, last=done.batches[-1], action=error.action
        ) from None


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
        changes=total_changes(batches),
        **Tally.total(batch.counts for batch in batches).told,
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


def row_of(found: SinkProof) -> list[str]:
    """A sink with its rows as text, under `COLUMNS`."""
    sink = found.sink if found.kind == "stream" else f"{found.sink} (txn)"
    return [sink, found.branch, *map(number, (found.last, found.oldest, found.batches, found.rows))]
