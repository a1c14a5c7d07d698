"""Tests a catalog with a scratch table: rival commits to it, files in its folder, then removal of everything."""

import time
from dataclasses import replace
from tempfile import TemporaryDirectory

from pyiceberg.catalog import Catalog

from lakesink.checks.bench import Bench, bench_in
from lakesink.checks.doctor.clock import Sighting, check_clock
from lakesink.checks.doctor.finding import Finding, Part, Standing, attempt
from lakesink.checks.doctor.storage import check_storage
from lakesink.checks.doctor.swap import NOT_ATOMIC, prove_swap
from lakesink.checks.scratch_table import ScratchTable
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_protocol.errors import CatalogError

SWAP = "compare-and-swap"
NAMESPACE_PREFIX = "lakesink_doctor_"
_MATTERS_OF_RIGHTS = ("LAKESINK_CATALOG_REJECTED", "LAKESINK_STORAGE_REJECTED", "PermissionError", "Forbidden")
_ASK = "Add --write-probe: it makes a table in a namespace of its own, sends rival commits to it, and drops both."


def skipped_proofs(why: str, fix: str = _ASK) -> list[Finding]:
    """The finding for tests that were not run."""
    return [Finding(Part.CATALOG, SWAP, Standing.SKIPPED, why, fix)]


def prove_catalog(found: FoundCatalog, catalog: Catalog) -> list[Finding]:
    """Test compare-and-swap, storage and clock of a catalog on a scratch table; `found` opens a second connection."""
    scratch = ScratchTable(catalog, NAMESPACE_PREFIX)
    sightings: list[Sighting] = []
    try:
        before_ms = _now_ms()
        table = attempt(Part.CATALOG, SWAP, scratch.create, found.properties)
        if isinstance(table, Finding):
            return [_not_made(table)]
        created = Sighting("the catalog", before_ms, table.metadata.last_updated_ms, _now_ms())
        sightings.append(created)
        swap = _swap(scratch, found)
        storage = check_storage(Part.CATALOG, table, sightings, may_write=True)
        return [*swap, *storage, check_clock(Part.CATALOG, sightings), *_removed(scratch)]
    finally:
        scratch.remove()  # again, after an interruption; a second removal does nothing


def prove_place(found: FoundCatalog) -> list[Finding]:
    """Test an embedded catalog that does not exist yet, in a temporary folder beside its place."""
    assert found.home is not None
    parent = next(place for place in found.home.parents if place.exists())
    with TemporaryDirectory(prefix=".lakesink-doctor-", dir=parent) as folder:
        made = CatalogConfig("lakesink-doctor", {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder})
        return prove_catalog(made.find(), made.open())


def _swap(scratch: ScratchTable, found: FoundCatalog) -> list[Finding]:
    catalog = scratch.catalog
    try:
        proof = prove_swap(Bench(scratch, catalog, found.open(), ledger_tag=True))
        return [Finding(Part.CATALOG, SWAP, Standing.OK, proof)]
    except CatalogError as error:
        failure = error
    if failure.code == NOT_ATOMIC:
        return [_swap_failed(failure)]
    try:
        with bench_in(found, catalog, [], prefix=NAMESPACE_PREFIX, ledger_tag=False) as tagless:
            proof = prove_swap(tagless)
    except Exception:  # noqa: BLE001 - without the tag it is no better, so the first failure is the finding
        return [_swap_failed(failure)]
    refused = f"Commits with lakesink's tag fail: [{failure.code}] {failure.what}"
    fix = "Give streams ledger_tag=False; a rollback after expiry is then not noticed."
    return [
        Finding(Part.CATALOG, SWAP, Standing.OK, proof),
        Finding(Part.CATALOG, "tags", Standing.WARNING, refused, fix),
    ]


def _swap_failed(failure: CatalogError) -> Finding:
    return Finding(Part.CATALOG, SWAP, Standing.FAILED, f"[{failure.code}] {failure.what}", failure.action)


def _not_made(failure: Finding) -> Finding:
    """Missing CREATE rights are a warning: writing to existing tables still works. Other failures stay failures."""
    if not any(word in failure.found for word in _MATTERS_OF_RIGHTS):
        return failure
    fix = f"{failure.fix} To prove it, run this as somebody who may make a namespace and a table."
    return replace(failure, standing=Standing.WARNING, found=f"not proved, no scratch table: {failure.found}", fix=fix)


def _removed(scratch: ScratchTable) -> list[Finding]:
    left = scratch.remove()
    if not left:
        return []
    found = f"A scratch table was not removed whole: {'; '.join(left)}"
    return [Finding(Part.CATALOG, "scratch", Standing.WARNING, found, "Remove it by hand.")]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
