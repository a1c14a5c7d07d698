"""Checks the catalog that a stream would use here: which one, why this one, its kind, and whether it answers."""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.utils.config import Config

from lakesink_catalog.commit.left_out import check_keeps_refs
from lakesink_catalog.connect.catalog import HOME_VARIABLE, CatalogConfig, FoundCatalog
from lakesink_catalog.connect.catalog_failures import translated
from lakesink_catalog.connect.kinds import KINDS, kind_of
from lakesink_catalog.connect.rest import TIMEOUT_PROPERTY, within
from lakesink_protocol.errors import CatalogError
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt

HTTP_SECONDS = 15
LONGEST_SECONDS = 60.0
_FILE = ".pyiceberg.yaml"


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
    chosen = attempt(Part.CATALOG, "choice", lambda: _find(name))
    if isinstance(chosen, Finding):
        return CatalogChecks([chosen])
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


def _find(name: str | None) -> FoundCatalog:
    """The catalog with a short time-out, because a user waits; a stream's time-out is longer."""
    found = CatalogConfig(name).find()
    if TIMEOUT_PROPERTY in found.properties:
        return found
    return replace(found, properties={**found.properties, TIMEOUT_PROPERTY: str(HTTP_SECONDS)})


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
