"""Runs the checks in order and collects their results. A failed check never ends the others."""

import platform
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

from pyiceberg.catalog import Catalog
from sqlalchemy import Engine

from lakesink._version import __version__
from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_catalog.connect.kinds import kind_of
from lakesink_catalog.connect.rest import BoundedRestCatalog
from lakesink_catalog.words import counted
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.redact import describe, redact
from lakesink_tools.checks.bench import Bench, bench_in, there_or_like
from lakesink_tools.checks.caught import caught
from lakesink_tools.checks.certify.probes import PROBES, two_tables
from lakesink_tools.checks.certify.race import Size, race
from lakesink_tools.checks.certify.state import RaceFigures, race_figures
from lakesink_tools.checks.certify.verdict import Check, CheckResult, Standing, Verdict, judge

NAMESPACE_PREFIX = "lakesink_certify_"
MOST_OF_A_NAME = 80
Say = Callable[[str], None]
"""Receives progress messages."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The verdict on a catalog, with its evidence."""

    catalog: str  # the catalog in words
    product: str  # what serves it, with its version, as far as it is known
    kind: str
    software: dict[str, str]  # versions of the software on this side
    size: Size
    findings: tuple[CheckResult, ...]  # one for each check, in their order
    left: tuple[str, ...] = ()  # what could not be removed, and why

    @property
    def verdict(self) -> Verdict:
        """The verdict of the findings."""
        return judge(self.findings)

    def to_json(self) -> dict[str, Any]:
        """The whole certificate, for programs."""
        return {
            "catalog": self.catalog,
            "product": self.product,
            "kind": self.kind,
            "verdict": self.verdict.value,
            "fit": self.verdict.fit,
            "software": self.software,
            "race": asdict(self.size),
            "checks": [
                {
                    "check": finding.check.value,
                    "standing": finding.standing.value,
                    "found": finding.found,
                    "asked": finding.check.asked,
                    "needed_for": finding.check.need.value,
                    "follows_if_broken": finding.check.follows,
                    "figures": dict(finding.figures),
                }
                for finding in self.findings
            ],
            "left": list(self.left),
        }


def certify(
    found: FoundCatalog,
    size: Size,
    say: Say = lambda _: None,
    checks: Collection[Check] = tuple(Check),
    product: str = "",
) -> Certificate:
    """Check everything that lakesink needs of an existing catalog, on scratch tables that are removed afterwards.

    A subset of the checks can only reject a catalog. `product` names what serves the catalog, with its version; without
    it the certificate has what the catalog says.
    """
    with there_or_like(found) as asked:
        asker = _Asker(asked, asked.open(create=False), size, say)
        findings = tuple(asker.findings(checks))
    libraries = {name: version(name) for name in ("pyiceberg", "sqlalchemy")}
    return Certificate(
        catalog=redact(found.where, found.properties),
        product=product or _product(asker.catalog, found.properties),
        kind=kind_of(found.name, found.properties),
        software={"lakesink": __version__, **libraries, "python": platform.python_version()},
        size=size,
        findings=findings,
        left=tuple(asker.left),
    )


@dataclass(slots=True)
class _Asker:
    found: FoundCatalog
    catalog: Catalog
    size: Size
    say: Say
    ledger_tag: bool = field(default=True, init=False)
    left: list[str] = field(default_factory=list)

    def findings(self, checks: Collection[Check]) -> Iterator[CheckResult]:
        for check in filter(checks.__contains__, Check):
            finding = self._finding(check)
            if check is Check.TAG:
                self.ledger_tag = finding.standing is not Standing.BROKEN
            yield finding

    def _finding(self, check: Check) -> CheckResult:
        """An exception in a check leaves that check undecided."""
        if check is Check.STALE_TAG and not self.ledger_tag:
            return CheckResult(check, Standing.ABSENT, "not tested: commits with the tag fail")
        self.say(f"asking: {check.value}")
        known = self.found.properties
        match caught(partial(self._ask, check)):
            case LakesinkError() as error:
                return CheckResult(check, Standing.UNDECIDED, redact(f"[{error.code}] {error.what}", known))
            case Exception() as error:
                return CheckResult(check, Standing.UNDECIDED, f"The check itself failed: {describe(error, known)}.")
            case finding:
                return finding

    def _ask(self, check: Check) -> CheckResult:
        with ExitStack() as stack:
            if check is Check.MULTI_TABLE:
                if not isinstance(self.catalog, BoundedRestCatalog) or not self.catalog.commits_several_tables:
                    return CheckResult(check, Standing.ABSENT, "the catalog offers no commit of several tables")
                benches = [self._bench(stack), self._bench(stack)]
                wrong = two_tables(*benches)
            else:
                benches = [bench := self._bench(stack)]
                if check is Check.COMPARE_AND_SWAP:
                    wrong = bench.accepts(bench.offers(1)[0])  # first commits have a check of their own
                else:
                    wrong = next(filter(None, PROBES[check](bench)), "")
            if wrong:
                return CheckResult(check, Standing.BROKEN, wrong)
            if check not in PROBES:
                return self._judged(check, *benches)
            names = sorted(set(filter(None, benches[0].heard)))
            return CheckResult(check, Standing.KEPT, f"refused as {', '.join(names)}" if names else "as required")

    def _judged(self, check: Check, *benches: Bench) -> CheckResult:
        names = [bench.scratch.name for bench in benches]
        before = [bench.state() for bench in benches]
        reports = race(self.found, names, self.size, ledger_tag=self.ledger_tag)
        sent = [request for requests, _ in reports for request in requests]
        troubles = [trouble for _, told in reports for trouble in told]
        figures = race_figures(sent, before, [bench.state() for bench in benches], ledger_tag=self.ledger_tag)
        return _raced(check, figures, troubles, self.size)

    def _bench(self, stack: ExitStack) -> Bench:
        bench = bench_in(self.found, self.catalog, self.left, prefix=NAMESPACE_PREFIX, ledger_tag=self.ledger_tag)
        return stack.enter_context(bench)


def _raced(check: Check, figures: RaceFigures, troubles: list[str], size: Size) -> CheckResult:
    """The result of a race; without an acknowledged commit for each writer, it proves nothing."""
    acknowledged = counted(figures.acknowledged, "commit")
    told = f"{counted(size.writers, 'writer')} at once: {acknowledged} acknowledged, {figures.refused} refused"
    if figures.unknown or troubles:
        told += f", {figures.unknown + len(troubles)} without an answer"
    numbers = asdict(figures) | {"troubles": len(troubles)}
    if figures.broken:
        return CheckResult(check, Standing.BROKEN, f"{told}; {figures.broken}.", numbers)
    if figures.acknowledged < size.writers:
        first = f" The first error: {troubles[0]}." if troubles else ""
        return CheckResult(check, Standing.UNDECIDED, f"{told}: too few for a proof.{first}", numbers)
    return CheckResult(check, Standing.KEPT, f"{told}, none lost", numbers)


def _product(catalog: Catalog, known: Mapping[str, Any]) -> str:
    """What the catalog says of itself; a service of REST need not say anything that helps."""
    engine = getattr(catalog, "engine", None)
    if isinstance(engine, Engine):
        return f"{engine.dialect.name} {'.'.join(map(str, engine.dialect.server_version_info or ()))}"
    if isinstance(catalog, BoundedRestCatalog):
        said = caught(catalog.server)
        shown = "" if isinstance(said, Exception) else redact(said, known)
        return f"REST service, {shown[:MOST_OF_A_NAME]}" if shown.isprintable() and shown else "REST service"
    return type(catalog).__name__
