"""The command ``doctor``: is everything here that a stream needs, and what to do about what is not?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lakesink_catalog.words import as_arguments
from lakesink_tools.checks.doctor import java, machine
from lakesink_tools.checks.doctor.finding import Finding
from lakesink_tools.cli.output import NOT_WELL, OK, Report, invalid, progress

_CHECK_WIDTH = 16


def doctor(
    table: str | None,
    catalog: str | None,
    checkpoint: str | None,
    query: str | None,
    *,
    spark: bool,
    write_probe: bool | None,
) -> Report:
    """Exit code 1: something failed; warnings are no failure."""
    if query is not None:
        return _of_query(query, alone=table is None and checkpoint is None)
    findings = [machine.check_python(), *machine.check_packages(), java.check_java()]
    if _failed(findings, "packages"):
        findings += machine.not_looked_at()
    else:
        from lakesink_tools.checks.doctor import examine  # imports the packages that were just checked

        wanted = examine.Wanted(table, catalog, checkpoint, spark=spark, write_probe=write_probe)
        with progress() as say:
            findings += examine.examine(wanted, say, java=not _failed(findings, "java"))
    if _counts(findings)["failed"]:
        next_step = "Next: correct the failures, from the top, and run lakesink doctor again."
    elif table is not None:
        next_step = f"Next: lakesink status {as_arguments(table, catalog)}"
    else:
        next_step = "Next: lakesink doctor TABLE --checkpoint DIR checks a stream; lakesink demo runs one."
    return _report(findings, next_step)


def _of_query(root: str, *, alone: bool) -> Report:
    if not alone:
        raise invalid("--query checks one query alone.", "Leave out TABLE and --checkpoint.")
    from lakesink_tools.checks.doctor.query import check_query  # doctor also runs without its packages

    findings = list(check_query(root))
    weak = [finding.check for finding in findings if finding.standing.value in ("warning", "failed")]
    advice = (
        "correct the findings, start the query, and check again" if weak else f"lakesink doctor --checkpoint {root}"
    )
    return _report(findings, f"Next: {advice}")


def _failed(findings: Sequence[Finding], check: str) -> bool:
    return any(finding.check == check and finding.standing.value == "failed" for finding in findings)


def _counts(findings: Sequence[Finding]) -> Counter[str]:
    return Counter(finding.standing.value for finding in findings)


def _report(findings: Sequence[Finding], next_step: str) -> Report:
    counts = _counts(findings)
    summary = ", ".join(f"{counts[standing]} {standing}" for standing in ("ok", "warning", "failed", "skipped"))
    return Report(
        document={"well": not counts["failed"], "checks": [asdict(finding) for finding in findings]},
        title=f"lakesink doctor: {summary}",
        hints=[*_lines(findings), "", next_step],
        exit_code=NOT_WELL if counts["failed"] else OK,
    )


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    part = None
    for finding in findings:
        if finding.part is not part:
            part = finding.part
            yield from ("", part.value)
        yield f"  {finding.standing.value:8} {finding.check:{_CHECK_WIDTH}} {finding.found}"
        if finding.fix:
            yield f"  {'':8} {'':{_CHECK_WIDTH}} do: {finding.fix}"
