"""A proof, turned into a report. Only reads."""

import time
from collections.abc import Iterator, Mapping, Sequence
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
            "accepted_only": bool(proof.findings) and not _broken(proof.findings),
            **_document(proof),
            "seconds": round(seconds, 3),
        },
        title=printable(f"{identifier} in {table.catalog.name}: {_verdict(proof)}"),
        columns=("sink", "branch", "last batch>", "retained from>", "batches>", "rows>", "since"),
        rows=[_row(found) for found in proof.sinks],
        hints=[printable(redact(hint)) for hint in (*_lines(proof, seconds), _next_step(identifier, proof))],
        exit_code=exit_code(proof.findings, proof.unchecked) if proof.sinks else NOT_WELL,
    )


def _proved(table: Table, done: Done | None, sink: str | None, *, footers: bool) -> Proof:
    """The proof, or that the storage failed; the original leaves only if it shows no secret, so not as a context."""
    known = table.io.properties
    try:
        return audit(table, done=done, sink=sink, footers=footers, now_ms=time.time_ns() // 1_000_000)
    except OSError as error:
        failure = error
    raise catalog_error(failure, "The table", known) from safe_cause(failure, known)


def verdict_on(findings: Sequence[Finding], unchecked: int = 0) -> str:
    """The findings in words; empty if there are none."""
    broken = len(_broken(findings))
    accepted = len(findings) - broken
    if broken:
        return counted(broken, "finding") + (f", and {accepted:,} accepted" if accepted else "")
    if accepted:
        batches = sum(len(finding.items) for finding in findings if finding.code is Code.BATCH_ACCEPTED)
        rest = f"; {counted(unchecked, 'file')} could not be looked at" if unchecked else ""
        return f"not clean: an operator accepted {counted(batches, 'batch')}, nothing else was found{rest}"
    return ""


def exit_code(findings: Sequence[Finding], unchecked: int = 0) -> int:
    """Of an audit, in which so many files could not be looked at."""
    if _broken(findings):
        return NOT_WELL
    if unchecked:
        return NOT_CHECKED
    return ACCEPTED if findings else OK


def documents_of(
    findings: Sequence[Finding], notes: Sequence[Note], words: Mapping[Code, tuple[str, str]]
) -> dict[str, Any]:
    """Findings and notes for JSON; `words` replace what a code means and what to do."""
    return {
        "findings": [_finding(finding, *words_for(finding.code, words)) for finding in findings],
        "notes": [asdict(note) | {"found": redact(note.found)} for note in notes],
    }


def words_for(code: Code, words: Mapping[Code, tuple[str, str]]) -> tuple[str, str]:
    """What a code means, and what to do."""
    return words.get(code, (code.means, code.action))


def told(said: Finding | Note) -> str:
    """A finding or note with its subject."""
    return f"{said.subject}: {said.found}" if said.subject else said.found


def _broken(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that no operator accepted."""
    return [finding for finding in findings if not finding.accepted]


def _verdict(proof: Proof) -> str:
    if proof.findings:
        return verdict_on(proof.findings, proof.unchecked)
    if not proof.sinks:
        return "no lakesink stream has written to it"
    if proof.unchecked:
        return f"no finding, but {counted(proof.unchecked, 'file')} could not be looked at"
    batches = counted(sum(found.batches for found in proof.sinks), "batch")
    return f"clean: {batches}, each there once, whole and readable"


def _document(proof: Proof) -> dict[str, Any]:
    return {
        "sinks": [asdict(found) for found in proof.sinks],
        **documents_of(proof.findings, proof.notes, {}),
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


def _finding(finding: Finding, means: str, action: str) -> dict[str, Any]:
    return {
        "code": finding.code.name,
        "subject": finding.subject,
        "found": redact(finding.found),
        "accepted": finding.accepted,
        "means": means,
        "action": action,
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
        yield f"note: {told(note)}"
    footers = "sizes and footers" if proof.footers else "sizes"
    yield (
        f"Looked at {counted(proof.snapshots, 'snapshot')}, {counted(proof.manifests, 'manifest')}, and {footers} of"
        f" {counted(proof.files, 'file')} ({size(proof.bytes)}) in {seconds:.1f} s."
    )


def _of_code(code: Code, findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings[:_SHOWN]:
        yield f"[{code.name}] {told(finding)}"
    if len(findings) > _SHOWN:
        yield f"[{code.name}] and {number(len(findings) - _SHOWN)} more; --output json has all."
    yield f"  It means: {code.means}"
    yield f"  Do: {code.action}"


def _next_step(identifier: str, proof: Proof) -> str:
    if proof.findings and not _broken(proof.findings):
        return "Next: see by the rows whether what was accepted is right; it is reported until its snapshots expire."
    if proof.findings:
        return "Next: mend what was found, from the top, and run lakesink audit again."
    if not proof.sinks:
        return f"Next: check the name of the table and the catalog, or lakesink status {plain(identifier)}"
    if proof.unchecked:
        return "Next: see why files could not be looked at (rights, network), and run lakesink audit again."
    return f"Next: lakesink log {plain(identifier)} shows the batches."
