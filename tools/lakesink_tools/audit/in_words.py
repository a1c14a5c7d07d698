"""What an audit found and what a batch is, in the words that commands and notebooks share. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakesink_catalog.words import changed, counted, number
from lakesink_protocol.measures import TOLD
from lakesink_tools.audit.finding import Code, Finding, Note
from lakesink_tools.audit.records import Record

if TYPE_CHECKING:
    from lakesink_tools.audit.audit import Proof, SinkProof


def verdict_of(proof: "Proof") -> str:
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


def verdict_on(findings: Sequence[Finding], unchecked: int = 0) -> str:
    """The findings in words; empty if there are none."""
    faults = len(broken(findings))
    accepted = len(findings) - faults
    if faults:
        return counted(faults, "finding") + (f", and {accepted:,} accepted" if accepted else "")
    if accepted:
        batches = sum(len(finding.items) for finding in findings if finding.code is Code.BATCH_ACCEPTED)
        rest = f"; {counted(unchecked, 'file')} could not be checked" if unchecked else ""
        return f"not clean: an operator accepted {counted(batches, 'batch')}, nothing else was found{rest}"
    return ""


def broken(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that no operator accepted."""
    return [finding for finding in findings if not finding.accepted]


def told(said: Finding | Note) -> str:
    """A finding or note with its subject."""
    return f"{said.subject}: {said.found}" if said.subject else said.found


def sink_in_words(found: "SinkProof") -> str:
    """A sink as every command shows it."""
    return found.sink if found.kind == "stream" else f"{found.sink} (txn)"


def outcome_in_words(record: Record) -> str:
    """How a batch came into the table, and what is not as usual about it."""
    rolled_back = ", rolled back" if record.in_branch is False else ""
    without = f", {counted(record.missing_inputs, 'input file')} missing" if record.missing_inputs else ""
    evolved = f", {record.schema_change}" if record.schema_change else ""
    changes = f": {changed(record.changes)}" if record.changes else ""
    copies = record.changes.changes if record.changes and record.changelog else 0
    logged = f", {number(copies)} logged" if copies else ""
    counts = {one: getattr(record, one.name) for one in TOLD}
    found = "".join(f", {counted(count, one.word)}" for one, count in counts.items() if count)
    return (record.accepted or record.outcome) + changes + logged + without + rolled_back + found + evolved
