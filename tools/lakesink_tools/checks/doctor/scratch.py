"""Tests a catalog with a scratch table: rival commits to it, files in its folder, then removal of everything.

Of two requests that assert the same head, at most one is accepted, and an accepted commit is in the table. A catalog
that breaks this promise loses or doubles batches without an error. Run the test before a stream uses the catalog.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyiceberg.catalog import Catalog

from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_catalog.connect.catalog_failures import asking
from lakesink_catalog.connect.first_snapshot import protects_first_snapshots
from lakesink_protocol.errors import CatalogError
from lakesink_tools.checks.bench import Bench, ScratchTable, answer, bench_in, send, there_or_like
from lakesink_tools.checks.caught import caught
from lakesink_tools.checks.certify.state import Sent, State, broken_promise
from lakesink_tools.checks.doctor.clock import Sighting, check_clock
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt
from lakesink_tools.checks.doctor.storage import check_storage, now_ms

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


def skipped_proofs(why: str, fix: str = _ASK) -> list[Finding]:
    """The finding for tests that were not run."""
    return [Finding(Part.CATALOG, SWAP, Standing.SKIPPED, why, fix)]


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
        created = Sighting("the catalog", before_ms, table.metadata.last_updated_ms, now_ms())
        sightings.append(created)
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


def prove_place(found: FoundCatalog) -> list[Finding]:
    """Test a catalog that does not exist yet, by one like it beside its place."""
    with there_or_like(found) as made:
        return prove_catalog(made, made.open())


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
