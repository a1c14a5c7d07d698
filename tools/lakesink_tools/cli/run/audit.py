"""The command ``audit``: what arrived, proved from the table or directory alone. Only reads."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.words import as_arguments, counted, moment, number, size
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.redact import redact
from lakesink_tools.audit.audit import COLUMNS, Proof, audit_of, row_of, verdict_of
from lakesink_tools.audit.checkpoint import read_done
from lakesink_tools.audit.finding import Code, Finding, Note, broken, name_of_rows, told, verdict_on
from lakesink_tools.audit.key_proof import KeyQuestion
from lakesink_tools.cli.output import ACCEPTED, NOT_CHECKED, NOT_WELL, OK, Report, invalid
from lakesink_tools.cli.rows import documents
from lakesink_tools.cli.target import is_directory

if TYPE_CHECKING:
    from lakesink_tools.audit.directory import DirectoryProof

_SHOWN = 5
_LOOKED_AT = ("snapshots", "manifests", "files", "bytes", "footers", "unchecked", "history_kept")
_DIRECTORY_WORDS = {
    Code.LEDGER_DAMAGED: (
        "A commit is missing, incomplete, changed or out of order: readers and the stream stop.",
        "Restore its file from a backup, or set the directory back to a batch before it (lakesink rewind).",
    ),
    Code.BATCH_TWICE: (
        "One batch was committed twice: its rows are in the directory twice.",
        "Set the directory back to the batch before the second one (lakesink rewind), and restart the stream.",
    ),
    Code.BATCH_GAP: (
        "Batches are missing between two committed batches.",
        "Set the directory back to the batch before the gap (lakesink rewind), or replay the missing batches.",
    ),
    Code.CHECKPOINT_AHEAD: (
        "Spark completed batches that the directory does not have: their rows are missing.",
        "Stop the stream, run lakesink rewind with the newest batch that is in the directory, and start it again.",
    ),
}


def audit(  # noqa: PLR0913 - click hands over one argument an option
    *,
    table: str,
    catalog: str | None,
    checkpoint: str | None,
    sink: str | None,
    skip_footers: bool,
    keys: bool,
    key: Sequence[str],
    at: str | None,
    show_values: bool,
) -> Report:
    """Exit code 1: something is not as it must be; 2: some could not be checked; 3: all was accepted."""
    if not keys and (key or at is not None or show_values):
        raise invalid("--key, --at and --show-values go with --keys.", "Give --keys too.")
    if is_directory(table, catalog):
        if keys:
            raise invalid("--keys is for tables, and this is a directory.", "Leave --keys out.")
        return _directory_report(table, checkpoint=checkpoint, sink=sink)
    question = KeyQuestion(tuple(key), at or MAIN_BRANCH, show_values) if keys else None
    return audit_report(table, catalog, checkpoint=checkpoint, sink=sink, footers=not skip_footers, keys=question)


def audit_report(
    identifier: str,
    catalog: str | None,
    *,
    checkpoint: str | None,
    sink: str | None,
    footers: bool,
    keys: KeyQuestion | None = None,
) -> Report:
    """What arrived, proved from the table, and from Spark's checkpoint if it is named."""
    started = time.perf_counter()
    found = connect(catalog, create=False)
    proof = audit_of(found, identifier, checkpoint=checkpoint, sink=sink, footers=footers, keys=keys)
    seconds = time.perf_counter() - started
    next_step = _next_step(as_arguments(identifier, catalog), proof, catalog)
    rows = name_of_rows(one.changes for one in proof.sinks)
    keys_found: dict[str, Any] | None = None
    if proof.keys is not None:
        files = [{"path": redact(path), "rows": rows_of_key} for path, rows_of_key in proof.keys.files]
        values = None if proof.keys.values is None else documents(proof.keys.values)
        keys_found = asdict(replace(proof.keys, values=None)) | {"files": files, "values": values}
    return Report(
        document={
            "table": identifier,
            "catalog": found.name,
            "well": not proof.findings and proof.history_kept,
            "accepted_only": bool(proof.findings) and not broken(proof.findings),
            "sinks": [asdict(one) for one in proof.sinks],
            **_documents(proof.findings, proof.notes, {}),
            "keys": keys_found,
            "looked_at": {name: getattr(proof, name) for name in _LOOKED_AT},
            "leftovers": asdict(proof.leftovers),
            "seconds": round(seconds, 3),
        },
        title=f"{identifier} in {found.name}: {verdict_of(proof)}",
        columns=(*COLUMNS, f"{rows}>", "since"),
        rows=[[*row_of(one), "-" if one.since is None else moment(one.since)] for one in proof.sinks],
        hints=[redact(hint) for hint in (*_lines(proof, seconds), next_step)],
        exit_code=_exit_code(proof.findings, is_whole=not proof.unchecked and proof.history_kept)
        if proof.sinks
        else NOT_WELL,
    )


def _directory_report(directory: str, *, checkpoint: str | None, sink: str | None) -> Report:
    from lakesink_tools.audit.directory import audit_directory  # tables need nothing of it
    from lakesink_tools.cli import directory as shown  # as above

    done = read_done(checkpoint) if checkpoint is not None else None
    proof = audit_directory(directory, sink=sink, done=done)
    batches = counted(sum(len(found.markers) for found in proof.sinks), "batch")
    clean = f"clean: {batches}, each there once, with all files"
    now = datetime.now(UTC)
    return Report(
        document={
            "directory": redact(directory),
            "well": not proof.findings,
            "sinks": [shown.state_of(found) for found in proof.sinks],
            **_documents(proof.findings, proof.notes, _DIRECTORY_WORDS),
        },
        title=f"{redact(directory)}: {verdict_on(proof.findings) or clean}",
        columns=shown.COLUMNS,
        rows=[shown.state_row(found, now) for found in proof.sinks],
        hints=[redact(line) for line in _directory_lines(proof)],
        exit_code=_exit_code(proof.findings),
    )


def _exit_code(findings: Sequence[Finding], *, is_whole: bool = True) -> int:
    """`is_whole` if everything could be checked."""
    if broken(findings):
        return NOT_WELL
    if not is_whole:
        return NOT_CHECKED
    return ACCEPTED if findings else OK


def _documents(
    findings: Sequence[Finding], notes: Sequence[Note], words: Mapping[Code, tuple[str, str]]
) -> dict[str, Any]:
    """Findings and notes for JSON; `words` replace what a code means and what to do."""
    found = []
    for finding in findings:
        means, action = words.get(finding.code, (finding.code.means, finding.code.action))
        found.append(
            {
                "code": finding.code.name,
                "subject": finding.subject,
                "found": redact(finding.found),
                "accepted": finding.accepted,
                "means": means,
                "action": action,
                "items": [redact(item) for item in finding.items],
            }
        )
    return {"findings": found, "notes": [asdict(note) | {"found": redact(note.found)} for note in notes]}


def _directory_lines(proof: "DirectoryProof") -> Iterator[str]:
    for finding in proof.findings:
        means, action = _DIRECTORY_WORDS.get(finding.code, (finding.code.means, finding.code.action))
        yield f"[{finding.code.name}] {told(finding)}"
        yield f"  It means: {means}"
        yield f"  Do: {action}"
    for note in proof.notes:
        yield f"note: {told(note)}"
    markers = [marker for found in proof.sinks for marker in found.markers]
    files = sum(len(marker.parts) for marker in markers)
    yield f"Checked {counted(len(markers), 'commit')}, and sizes of {counted(files, 'file')}."


def _lines(proof: Proof, seconds: float) -> Iterator[str]:
    by_code = sorted(proof.findings, key=lambda finding: list(Code).index(finding.code))
    for code, group in groupby(by_code, key=lambda finding: finding.code):
        findings = list(group)
        yield from (f"[{code.name}] {told(finding)}" for finding in findings[:_SHOWN])
        if len(findings) > _SHOWN:
            yield f"[{code.name}] and {number(len(findings) - _SHOWN)} more; --output json has all."
        yield f"  It means: {code.means}"
        yield f"  Do: {code.action}"
    for note in proof.notes:
        yield f"note: {told(note)}"
    if proof.keys is not None:
        yield proof.keys.summary
        shown = [] if proof.keys.values is None else documents(proof.keys.values)
        yield from (f"  {', '.join(f'{name}={value}' for name, value in values.items())}" for values in shown)
    footers = "sizes and footers" if proof.footers else "sizes"
    yield (
        f"Checked {counted(proof.snapshots, 'snapshot')}, {counted(proof.manifests, 'manifest')}, and {footers} of"
        f" {counted(proof.files, 'file')} ({size(proof.bytes)}) in {seconds:.1f} s."
    )


def _next_step(table: str, proof: Proof, catalog: str | None) -> str:
    if proof.findings:
        correct = "Next: correct the findings, from the top, and run lakesink audit again."
        accepted = "Next: check the rows of the accepted batches; the findings stay until the snapshots expire."
        return correct if broken(proof.findings) else accepted
    if not proof.sinks and any(note.name in ("prepared", "first batch") for note in proof.notes):
        return "Next: start its query again, which completes the batch, and run lakesink audit again."
    if not proof.sinks:
        return f"Next: check the name of the table and the catalog, or lakesink status {table}"
    if not proof.history_kept:
        command = shlex.join(["lakesink", "certify", *([catalog] if catalog else [])])
        return f"Next: {command} tests what else this catalog does not do."
    if proof.unchecked:
        return "Next: correct why files could not be checked (rights, network), and run lakesink audit again."
    return f"Next: lakesink log {table} shows the batches."
