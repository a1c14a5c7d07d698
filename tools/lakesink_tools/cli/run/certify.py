"""The command ``certify``: is a catalog fit for exactly-once?"""

from collections.abc import Iterator

from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_tools.checks.certify.examine import Certificate
from lakesink_tools.checks.certify.examine import certify as ask
from lakesink_tools.checks.certify.race import Size
from lakesink_tools.checks.certify.verdict import ADVICE, Verdict
from lakesink_tools.cli.output import NOT_CHECKED, NOT_WELL, OK, Report, progress

_WIDTH = 17


def certify(catalog: str | None, writers: int, commits: int, processes: int, product: str) -> Report:
    """Exit code 1: a stream with lakesink's defaults is not exactly-once on it; 2: not decided."""
    found = CatalogConfig(catalog).find()
    with progress() as say:
        return _report(ask(found, Size(writers, commits, processes), say, product=product))


def _report(certificate: Certificate) -> Report:
    verdict = certificate.verdict
    unfit = NOT_CHECKED if verdict is Verdict.UNDECIDED else NOT_WELL
    return Report(
        document=certificate.to_json() | {"advice": ADVICE[verdict]},
        title=f"{certificate.catalog} is {verdict.value}.",
        hints=["", *_lines(certificate), "", f"Next: {ADVICE[verdict]}"],
        exit_code=OK if verdict.fit else unfit,
    )


def _lines(certificate: Certificate) -> Iterator[str]:
    for finding in certificate.findings:
        yield f"  {finding.standing.value:9} {finding.check.value:{_WIDTH}} {finding.found}"
        if finding.standing.value == "broken":
            yield f"  {'':9} {'':{_WIDTH}} so: {finding.check.follows}"
    for what in certificate.left:
        yield f"  not removed: {what}. Remove it manually."
    yield f"  {certificate.product}; {', '.join(f'{name} {version}' for name, version in certificate.software.items())}"
