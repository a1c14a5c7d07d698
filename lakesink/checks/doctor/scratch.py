"""Tests a catalog with a scratch table: rival commits to it, files in its folder, then removal of everything."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pyiceberg.catalog import Catalog

from lakesink.checks.doctor.clock import Sighting, check_clock
from lakesink.checks.doctor.finding import Finding, Part, Standing, attempt
from lakesink.checks.doctor.storage import check_storage, delete_folder
from lakesink.checks.scratch_table import ScratchTable
from lakesink.checks.swap_probe import NAMESPACE_PREFIX, NOT_ATOMIC, SwapProof, prove_swap
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import describe

SWAP = "compare-and-swap"
_MATTERS_OF_RIGHTS = ("LAKESINK_CATALOG_REJECTED", "LAKESINK_STORAGE_REJECTED", "PermissionError", "Forbidden")
_ASK = "Add --write-probe: it makes a table in a namespace of its own, sends rival commits to it, and drops both."


def skipped_proofs(why: str, fix: str = _ASK) -> list[Finding]:
    """The finding for tests that were not run."""
    return [Finding(Part.CATALOG, SWAP, Standing.SKIPPED, why, fix)]


def prove_catalog(found: FoundCatalog, catalog: Catalog) -> list[Finding]:
    """Test compare-and-swap, storage and clock of a catalog on a scratch table.

    Args:
        found: For the second connection, as another driver would open it.
        catalog: The first connection.
    """
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
        remove(scratch)  # again, after an interruption; a second removal does nothing


def prove_place(found: FoundCatalog) -> list[Finding]:
    """Test an embedded catalog that does not exist yet, in a temporary folder beside its place."""
    assert found.home is not None
    with _beside(found.home) as folder:
        made = CatalogConfig("lakesink-doctor", {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder)})
        return prove_catalog(made.find(), made.open())


@contextmanager
def _beside(home: Path) -> Iterator[Path]:
    parent = next(place for place in home.parents if place.exists())
    with TemporaryDirectory(prefix=".lakesink-doctor-", dir=parent) as folder:
        yield Path(folder)


def _swap(scratch: ScratchTable, found: FoundCatalog) -> list[Finding]:
    try:
        return [_proved(prove_swap(scratch, found.open, ledger_tag=True))]
    except CatalogError as error:
        failure = error
    if failure.code == NOT_ATOMIC:
        return [_swap_failed(failure)]
    tagless = ScratchTable(scratch.catalog, NAMESPACE_PREFIX)
    try:
        tagless.create()
        proof = prove_swap(tagless, found.open, ledger_tag=False)
    except Exception:  # noqa: BLE001 - without the tag it is no better, so the first failure is the finding
        return [_swap_failed(failure)]
    finally:
        remove(tagless)
    refused = f"Commits with lakesink's tag fail: [{failure.code}] {failure.what}"
    fix = "Give streams ledger_tag=False; a rollback after expiry is then not noticed."
    return [_proved(proof), Finding(Part.CATALOG, "tags", Standing.WARNING, refused, fix)]


def _swap_failed(failure: CatalogError) -> Finding:
    return Finding(Part.CATALOG, SWAP, Standing.FAILED, f"[{failure.code}] {failure.what}", failure.action)


def _proved(proof: SwapProof) -> Finding:
    found = (
        f"the second of two commits on one head was refused ({proof.refused_as}); {proof.races} races, one winner each"
    )
    return Finding(Part.CATALOG, SWAP, Standing.OK, found)


def _not_made(failure: Finding) -> Finding:
    """Missing CREATE rights are a warning: writing to existing tables still works. Other failures stay failures."""
    if not any(word in failure.found for word in _MATTERS_OF_RIGHTS):
        return failure
    fix = f"{failure.fix} To prove it, run this as somebody who may make a namespace and a table."
    return replace(failure, standing=Standing.WARNING, found=f"not proved, no scratch table: {failure.found}", fix=fix)


def _removed(scratch: ScratchTable) -> list[Finding]:
    left = remove(scratch)
    if not left:
        return []
    found = f"A scratch table was not removed whole: {'; '.join(left)}"
    return [Finding(Part.CATALOG, "scratch", Standing.WARNING, found, "Remove it by hand.")]


def remove(scratch: ScratchTable) -> list[str]:
    """Remove a scratch table, its namespace and its folder; returns what is left, and why. May be called again."""
    left = scratch.drop()
    if scratch.table is not None and scratch.folder is not None:
        try:
            delete_folder(scratch.table, scratch.folder)
        except FileNotFoundError:
            return left
        except Exception as error:  # noqa: BLE001 - what stays behind is told, whatever kept it
            left.append(f"folder {scratch.folder} ({describe(error, scratch.catalog.properties)})")
    return left


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
