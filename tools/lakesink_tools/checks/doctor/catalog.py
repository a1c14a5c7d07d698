"""Checks the catalog that a stream would use here: which one, why this one, its kind, whether it answers and is safe.

A scratch table proves that it is: rival commits to it, files in its folder, then removal of everything. Of two requests
that assert the same head, at most one is accepted, and an accepted commit is in the table. A catalog that breaks this
promise loses or doubles batches without an error. Run the test before a stream uses the catalog.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.utils.config import Config

from lakesink_catalog.commit.left_out import check_keeps_refs
from lakesink_catalog.connect.catalog import HOME_VARIABLE, CatalogConfig, FoundCatalog
from lakesink_catalog.connect.catalog_failures import asking, translated
from lakesink_catalog.connect.first_snapshot import protects_first_snapshots
from lakesink_catalog.connect.kinds import KINDS, kind_of
from lakesink_catalog.connect.rest import TIMEOUT_PROPERTY, within
from lakesink_protocol.errors import CatalogError
from lakesink_tools.checks.bench import Bench, ScratchTable, answer, bench_in, send, there_or_like
from lakesink_tools.checks.caught import caught
from lakesink_tools.checks.certify.state import Sent, State, broken_promise
from lakesink_tools.checks.doctor.clock import Sighting, check_clock
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt
from lakesink_tools.checks.doctor.storage import check_storage, now_ms

HTTP_SECONDS = 15
LONGEST_SECONDS = 60.0
_FILE = ".pyiceberg.yaml"
SWAP = "compare-and-swap"
RACES = 5
NAMESPACE_PREFIX = "lakesink_doctor_"
_MATTERS_OF_RIGHTS = ("LAKESINK_CATALOG_REJECTED", "LAKESINK_STORAGE_REJECTED", "PermissionError", "Forbidden")
_TOUCHED = "Only a scratch table was changed."
_WITHOUT_TAG = "Give streams ledger_tag=False; a rollback after expiry is then not noticed."
_ASK = "Add --write-probe: it creates a scratch table in its own namespace, sends rival commits, and drops both."
# A warning, because a stream can write to tables that have a snapshot, and creates its own with one.
_FIRST_SNAPSHOT = Finding(
    Part.CATALOG,
    "first snapshot",
    Standing.WARNING,
    "the catalog lets two first snapshots of a table replace each other",
    "Tables that lakesink creates get one at once. Give others one: lakesink first-snapshot TABLE.",
)


@dataclass(frozen=True, slots=True)
class CatalogChecks:
    """Result of the checks of the catalog."""

    findings: list[Finding]
    found: FoundCatalog | None = None  # the catalog as configured; None if there is no such configuration
    opened: Catalog | None = None  # None if it did not answer, or does not exist yet

    @property
    def failed(self) -> bool:
        """True if a stream could not use the catalog."""
        return any(finding.standing is Standing.FAILED for finding in self.findings)


def check_catalog(name: str | None, longest_seconds: float = LONGEST_SECONDS) -> CatalogChecks:
    """Find the catalog as a stream would, and connect to it; `name` is None for the default."""
    chosen = attempt(Part.CATALOG, "choice", CatalogConfig(name).find)
    if isinstance(chosen, Finding):
        return CatalogChecks([chosen])
    # A short time-out unless the user gave one, because a user waits; a stream's is longer.
    chosen = replace(chosen, properties={TIMEOUT_PROPERTY: str(HTTP_SECONDS), **chosen.properties})
    if chosen.home is None:
        why = "named by --catalog" if name else "PyIceberg's default catalog"
        choice = f"{chosen.where}: {why}, configured in {_places(chosen.name)}"
        findings = [Finding(Part.CATALOG, "choice", Standing.OK, choice), _kind(chosen)]
    else:
        findings = [_embedded_choice(chosen, name)]
    opened = _answering(chosen, longest_seconds)
    if isinstance(opened, Finding):
        return CatalogChecks([*findings, opened], chosen)
    catalog, namespaces = opened
    findings.append(Finding(Part.CATALOG, "answers", Standing.OK, f"with {len(namespaces)} namespace(s)"))
    keeps = partial(check_keeps_refs, "tag_every, branch and reader-id", catalog.properties)
    if isinstance(lacking := attempt(Part.CATALOG, "tags", keeps), Finding):
        findings.append(replace(lacking, standing=Standing.WARNING))  # a stream can do without tags
    return CatalogChecks(findings, chosen, catalog)


def _embedded_choice(found: FoundCatalog, name: str | None) -> Finding:
    home = os.environ.get(HOME_VARIABLE)
    place = f"by {HOME_VARIABLE}" if home else f"in the working folder, because {HOME_VARIABLE} is not set"
    known = Config().get_known_catalogs()
    if name is None and known:
        shown = f"{found.where}, {place}; PyIceberg's configuration has {', '.join(known)}, none of them the default"
        fix = (
            f"If streams are to use it, give them catalog={known[0]!r}, or: export PYICEBERG_DEFAULT_CATALOG={known[0]}"
        )
        return Finding(Part.CATALOG, "choice", Standing.WARNING, shown, fix)
    why = "named by --catalog" if name else "no catalog is configured"
    return Finding(Part.CATALOG, "choice", Standing.OK, f"{found.where}, {place}: {why}")


def _places(name: str) -> str:
    """Where PyIceberg finds a catalog's configuration: its file, and the names of environment variables."""
    folders = (os.environ.get("PYICEBERG_HOME"), Path.home(), Path.cwd())
    file = next((path for folder in folders if folder and (path := Path(folder, _FILE)).is_file()), None)
    start = f"PYICEBERG_CATALOG__{name}__".upper().replace("-", "_")
    variables = sorted(
        variable
        for variable in os.environ
        if variable.upper() == "PYICEBERG_DEFAULT_CATALOG" or variable.upper().replace("-", "_").startswith(start)
    )
    return ", ".join([*([str(file)] if file else []), *variables]) or "PyIceberg's configuration"


def _kind(found: FoundCatalog) -> Finding:
    kind = kind_of(found.name, found.properties)
    if KINDS[kind].certified:
        where = "Iceberg's reference server; lakesink certify tests yours" if kind == "rest" else "this kind"
        return Finding(Part.CATALOG, "kind", Standing.OK, f"{kind}: lakesink's tests prove exactly-once on {where}")
    found_text = f"{kind}: accepted, but lakesink's tests do not cover this kind"
    fix = "Use a SQL or REST catalog, or test its compare-and-swap with --write-probe."
    return Finding(Part.CATALOG, "kind", Standing.WARNING, found_text, fix)


def _answering(found: FoundCatalog, longest_seconds: float) -> tuple[Catalog, list[Any]] | Finding:
    def knock() -> tuple[Catalog, list[Any]]:
        catalog = found.open(create=False)
        return catalog, translated(found.where, found.properties, catalog.list_namespaces)

    late = CatalogError.of("CATALOG_UNREACHABLE.late", where=found.where, seconds=longest_seconds)
    answer = attempt(Part.CATALOG, "answers", lambda: within(longest_seconds, knock, late), found.properties)
    if isinstance(answer, Finding) and "[LAKESINK_CATALOG_MISSING]" in answer.found:
        standing = Standing.OK if found.home else Standing.WARNING
        text = "It does not exist yet: the first stream with create_table=True creates it."
        return replace(answer, standing=standing, found=text, fix="")
    return answer


def check_commits(checked: CatalogChecks, *, may_write: bool) -> list[Finding]:
    """Test compare-and-swap of a checked catalog; of one that does not exist yet, by one like it beside its place."""
    found, opened = checked.found, checked.opened
    if found is None or checked.failed:
        return [Finding(Part.CATALOG, SWAP, Standing.SKIPPED, "not tried: repair the catalog first")]
    if not may_write:
        return [Finding(Part.CATALOG, SWAP, Standing.SKIPPED, "not tried: this check creates a scratch table", _ASK)]
    with there_or_like(found) as there:
        return prove_catalog(there, opened or there.open())


def prove_catalog(found: FoundCatalog, catalog: Catalog) -> list[Finding]:
    """Test compare-and-swap, storage and clock of a catalog on a scratch table; `found` opens a second connection."""
    scratch = ScratchTable(catalog, NAMESPACE_PREFIX)
    sightings: list[Sighting] = []
    try:
        before_ms = now_ms()
        table = attempt(Part.CATALOG, SWAP, scratch.create, found.properties)
        if isinstance(table, Finding):
            if any(word in table.found for word in _MATTERS_OF_RIGHTS):  # existing tables can still be written
                fix = f"{table.fix} To test it, run this as a user who may create a namespace and a table."
                found_text = f"not tested, no scratch table: {table.found}"
                table = replace(table, standing=Standing.WARNING, found=found_text, fix=fix)
            return [table]
        sightings.append(Sighting("the catalog", before_ms, table.metadata.last_updated_ms, now_ms()))
        findings = _swap(scratch, found)
        storage = check_storage(Part.CATALOG, table, sightings, may_write=True)
        if not protects_first_snapshots(catalog, (scratch.namespace,)):
            findings.append(_FIRST_SNAPSHOT)
        findings += [*storage, check_clock(Part.CATALOG, sightings)]
        if left := scratch.remove():
            told = f"A scratch table was not removed completely: {'; '.join(left)}"
            findings.append(Finding(Part.CATALOG, "scratch", Standing.WARNING, told, "Remove it manually."))
        return findings
    finally:
        scratch.remove()  # again, after an interruption; a second removal does nothing


def _swap(scratch: ScratchTable, found: FoundCatalog) -> list[Finding]:
    catalog = scratch.catalog

    def without_tag() -> str:
        with bench_in(found, catalog, [], prefix=NAMESPACE_PREFIX, ledger_tag=False) as bench:
            return _prove_swap(bench)

    try:
        proof = _prove_swap(Bench(scratch, catalog, found.open(), ledger_tag=True, connect=found.open))
        return [Finding(Part.CATALOG, SWAP, Standing.OK, proof)]
    except CatalogError as error:
        failure = error
    untagged = None if failure.code == "LAKESINK_CATALOG_NOT_ATOMIC" else caught(without_tag)
    if not isinstance(untagged, str):  # commits without the tag fail too, so the first failure is the finding
        return [Finding(Part.CATALOG, SWAP, Standing.FAILED, f"[{failure.code}] {failure.what}", failure.action)]
    refused = f"Commits with lakesink's tag fail: [{failure.code}] {failure.what}"
    return [
        Finding(Part.CATALOG, SWAP, Standing.OK, untagged),
        Finding(Part.CATALOG, "tags", Standing.WARNING, refused, _WITHOUT_TAG),
    ]


def _prove_swap(bench: Bench) -> str:
    """Send pairs of commits that assert the same head, in turn and then at once; returns the proof in words."""
    refused_as = _in_turn(bench)
    races = 0
    for _ in range(RACES):
        with ThreadPoolExecutor(2) as pool:
            rivals = list(pool.map(answer, (bench.mine, bench.other), bench.offers()))
        shown = dict(_checked(bench, rivals).snapshots)
        # a cautious catalog may refuse both
        races += any(snapshot_id in shown for sent in rivals for snapshot_id in sent.snapshot_ids)
    return f"the second of two commits on one head was refused ({refused_as}); {races} races, one winner each"


def _in_turn(bench: Bench) -> str:
    """The first commit lands completely, the second is refused; returns the name of that error."""
    first, second = bench.offers()
    asking(bench.mine, lambda: send(bench.mine, first))
    landed = Sent((first.snapshot_id,))
    state = _checked(bench, [landed])
    if state.entry != first.snapshot_id:
        raise _not_atomic(bench, "It accepted a commit and left out the table property in it.")
    if bench.ledger_tag and state.tag != first.snapshot_id:
        raise CatalogError.of("CATALOG_WITHOUT_TAGS.tried", data=_TOUCHED, name=bench.mine.name, fix=_WITHOUT_TAG)
    rival = answer(bench.mine, second)
    _checked(bench, [landed, rival])
    if not answer(bench.mine, second.only_properties()).refused_as:
        raise _not_atomic(bench, "It accepted properties of a commit that asserted an old head.")
    return rival.refused_as


def _checked(bench: Bench, rivals: Sequence[Sent]) -> State:
    state = bench.state()
    if broken := broken_promise(rivals, state):
        raise _not_atomic(bench, broken)
    return state


def _not_atomic(bench: Bench, what: str) -> CatalogError:
    return CatalogError.of("CATALOG_NOT_ATOMIC", data=_TOUCHED, name=bench.mine.name, what=what)
