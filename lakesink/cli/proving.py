"""A proof, turned into a report. Only reads."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from pyiceberg.table import Table

from lakesink.audit.checkpoint import Done, read_done
from lakesink.audit.finding import Code, Finding, Note, counted
from lakesink.audit.proof import Proof, SinkProof, audit
from lakesink.cli.output import ACCEPTED, NOT_CHECKED, NOT_WELL, OK, Report, moment, number, plain, printable, size
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.errors import catalog_error
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.redact import redact, safe_cause

_SHOWN = 5


def audit_report(
    identifier: str, catalog: str | None, *, checkpoint: str | None, sink: str | None, footers: bool
) -> Report:
    """What arrived, proved from the table, and from Spark's checkpoint if it is named."""
    started = time.perf_counter()
    done = read_done(checkpoint) if checkpoint is not None else None
    table = load_table(connect(catalog, create=False), identifier)
    proof = _proved(table, done, sink, footers=footers)
    seconds = time.perf_counter() - started
    return Report(
        document={
            "table": identifier,
            "catalog": table.catalog.name,
            "well": not proof.findings,
            "accepted_only": bool(proof.findings) and not _broken(proof),
            **_document(proof),
            "seconds": round(seconds, 3),
        },
        title=printable(f"{identifier} in {table.catalog.name}: {_verdict(proof)}"),
        columns=("sink", "branch", "last batch>", "retained from>", "batches>", "rows>", "since"),
        rows=[_row(found) for found in proof.sinks],
        hints=[printable(redact(hint)) for hint in (*_lines(proof, seconds), _next_step(identifier, proof))],
        exit_code=_exit_code(proof),
    )


def _proved(table: Table, done: Done | None, sink: str | None, *, footers: bool) -> Proof:
    """The proof, or that the storage failed; the original leaves only if it shows no secret, so not as a context."""
    known = table.io.properties
    try:
        return audit(table, done=done, sink=sink, footers=footers, now_ms=time.time_ns() // 1_000_000)
    except OSError as error:
        failure = error
    raise catalog_error(failure, "The table", known, data="Nothing was changed.") from safe_cause(failure, known)


def _exit_code(proof: Proof) -> int:
    if _broken(proof) or not proof.sinks:
        return NOT_WELL
    if proof.unchecked:
        return NOT_CHECKED
    return ACCEPTED if proof.findings else OK


def _broken(proof: Proof) -> list[Finding]:
    """Findings that no operator accepted."""
    return [finding for finding in proof.findings if not finding.accepted]


def _verdict(proof: Proof) -> str:
    accepted = [finding for finding in proof.findings if finding.accepted]
    if _broken(proof):
        return counted(len(_broken(proof)), "finding") + (f", and {len(accepted):,} accepted" if accepted else "")
    if accepted:
        batches = sum(len(finding.items) for finding in accepted if finding.code is Code.BATCH_ACCEPTED)
        unchecked = f"; {counted(proof.unchecked, 'file')} could not be looked at" if proof.unchecked else ""
        return f"not clean: an operator accepted {counted(batches, 'batch')}, nothing else was found{unchecked}"
    if not proof.sinks:
        return "no lakesink stream has written to it"
    if proof.unchecked:
        return f"no finding, but {counted(proof.unchecked, 'file')} could not be looked at"
    batches = sum(found.batches for found in proof.sinks)
    return f"clean: {counted(batches, 'batch')}, each there once, whole and readable"


def _document(proof: Proof) -> dict[str, Any]:
    return {
        "sinks": [asdict(found) for found in proof.sinks],
        "findings": [_finding(finding) for finding in proof.findings],
        "notes": [asdict(note) | {"found": redact(note.found)} for note in proof.notes],
        "looked_at": {
            "snapshots": proof.snapshots,
            "manifests": proof.manifests,
            "files": proof.files,
            "bytes": proof.bytes,
            "footers": proof.footers,
            "unchecked": proof.unchecked,
        },
        "leftovers": asdict(proof.leftovers),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code.name,
        "subject": finding.subject,
        "found": redact(finding.found),
        "accepted": finding.accepted,
        "means": finding.code.means,
        "action": finding.code.action,
        "items": [redact(item) for item in finding.items],
    }


def _row(found: SinkProof) -> list[str]:
    return [
        found.sink if found.kind == "stream" else f"{found.sink} (txn)",
        found.branch,
        number(found.last),
        number(found.oldest),
        number(found.batches),
        number(found.rows),
        "-" if found.since is None else moment(found.since),
    ]


def _lines(proof: Proof, seconds: float) -> Iterator[str]:
    by_code = sorted(proof.findings, key=lambda finding: list(Code).index(finding.code))
    for code, group in groupby(by_code, key=lambda finding: finding.code):
        yield from _of_code(code, list(group))
    for note in proof.notes:
        yield f"note: {_told(note)}"
    footers = "sizes and footers" if proof.footers else "sizes"
    yield (
        f"Looked at {counted(proof.snapshots, 'snapshot')}, {counted(proof.manifests, 'manifest')}, and {footers} of"
        f" {counted(proof.files, 'file')} ({size(proof.bytes)}) in {seconds:.1f} s."
    )


def _of_code(code: Code, findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings[:_SHOWN]:
        yield f"[{code.name}] {_told(finding)}"
    if len(findings) > _SHOWN:
        yield f"[{code.name}] and {number(len(findings) - _SHOWN)} more; --output json has all."
    yield f"  It means: {code.means}"
    yield f"  Do: {code.action}"


def _told(said: Finding | Note) -> str:
    return f"{said.subject}: {said.found}" if said.subject else said.found


def _next_step(identifier: str, proof: Proof) -> str:
    if proof.findings and not _broken(proof):
        return "Next: see by the rows whether what was accepted is right; it is reported until its snapshots expire."
    if proof.findings:
        return "Next: mend what was found, from the top, and run lakesink audit again."
    if not proof.sinks:
        return f"Next: check the name of the table and the catalog, or lakesink status {plain(identifier)}"
    if proof.unchecked:
        return "Next: see why files could not be looked at (rights, network), and run lakesink audit again."
    return f"Next: lakesink log {plain(identifier)} shows the batches."
