"""`lakesink certify` on every catalog that this machine can run, and its results for the documents.

``python -m proof.certify`` asks them, keeps their certificates in `FOLDER` and writes the tables of `DOCUMENT` anew.
``python -m proof.certify NAME...`` asks some. ``python -m proof.certify tables`` writes the tables from the
certificates that are there, those that users sent too.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_tools.checks.certify.examine import Certificate, certify
from lakesink_tools.checks.certify.race import Size
from lakesink_tools.checks.certify.verdict import Check, Standing, Verdict
from servers import catalogs
from servers.jars import ICEBERG_BEFORE, ROOT
from servers.missing import Missing
from servers.postgres import USER, postgres_server
from servers.rest_reference import rest_reference
from website.tables import renewed

DOCUMENT = ROOT / "docs/operate/certify.md"
FOLDER = ROOT / "proof/certificates"
"""What `run` found, as ``lakesink certify --output json`` prints it; its folder `USERS` has those that users sent."""
USERS = "users"
SECONDS_PER_COMMIT = 55
"""Of each writer, in all catalogs together, on two cores."""

Progress = Callable[[str], None]
Document = Mapping[str, Any]
Documents = Mapping[str, Document]
Held = Iterator[FoundCatalog]


@contextmanager
def _sqlite(folder: Path) -> Held:
    found = CatalogConfig("lake", {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/w"}).find()
    found.open()
    yield found


@contextmanager
def _postgresql(folder: Path) -> Held:
    with postgres_server("certify") as server:
        uri = f"postgresql://{USER}:certify@{server.address}"
        yield CatalogConfig("lake", {"uri": uri, "warehouse": f"file://{folder}/w"}).find()


@contextmanager
def _rest(folder: Path) -> Held:
    with rest_reference(folder) as server:
        yield CatalogConfig("lake", {"type": "rest", "uri": server.uri}).find()


@contextmanager
def _in_memory(folder: Path) -> Held:
    found = CatalogConfig("lake", {"type": "in-memory", "warehouse": f"file://{folder}/w"}).find()
    kept = found.open()  # it lives as long as somebody holds it
    yield found
    kept.close()


@contextmanager
def _of_others(hold: catalogs.Hold, folder: Path) -> Held:
    with hold(folder) as properties:
        yield CatalogConfig("lake", properties).find()


CATALOGS: Mapping[str, Callable[[Path], AbstractContextManager[FoundCatalog]]] = {
    "SQLite": _sqlite,
    "PostgreSQL": _postgresql,
    f"Iceberg REST reference server {ICEBERG_BEFORE}, over SQLite": _rest,
    "in memory (PyIceberg, over SQLite)": _in_memory,
    **{name: partial(_of_others, hold) for name, hold in catalogs.CATALOGS.items()},
}
WRITERS = {catalogs.HIVE: 6}
"""Fewer than the command's where writers wait for each other in the catalog: each must get a commit through in time."""
NOT_SAFE = {catalogs.NESSIE}
"""Those that are rightly found to be so: see the page for what Nessie does not keep."""


@dataclass(frozen=True, slots=True)
class CertifyFigures:
    """What each catalog came to.

    Attributes:
        certificates: By name of the catalog.
        skipped: Why others were not asked.
    """

    certificates: dict[str, Certificate]
    skipped: dict[str, str]

    @property
    def unexpected(self) -> dict[str, Verdict]:
        """The verdicts that are not those of `NOT_SAFE`, or else fit, by name of the catalog."""
        verdicts = {name: certificate.verdict for name, certificate in self.certificates.items()}
        return {
            name: verdict
            for name, verdict in verdicts.items()
            if not (verdict is Verdict.NOT_SAFE if name in NOT_SAFE else verdict.fit)
        }

    @property
    def well(self) -> bool:
        """True if every catalog that was asked is as expected."""
        return not self.unexpected

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        certificates = {name: certificate.to_json() for name, certificate in self.certificates.items()}
        return {"certificates": certificates, "skipped": self.skipped}


def run(
    seconds: float | None = None,
    seed: int = 0,
    progress: Progress = lambda _: None,
    names: Collection[str] = (),
) -> CertifyFigures:
    """Ask every catalog, or those with these names.

    Args:
        seconds: About how long it may take; it asks each writer for fewer commits, never for less than two. None for
            the default of the command.
        seed: Not used: chance comes from the scheduler.
        progress: Is told what is asked now.
        names: Of those to ask; all if there are none.
    """
    del seed
    most = Size().commits
    commits = most if seconds is None else min(max(int(seconds / SECONDS_PER_COMMIT), 2), most)
    certificates: dict[str, Certificate] = {}
    skipped: dict[str, str] = {}
    for name, hold in ((name, CATALOGS[name]) for name in names or CATALOGS):
        with tempfile.TemporaryDirectory(prefix="lakesink-certify-") as folder:
            try:
                size = Size(writers=WRITERS.get(name, Size().writers), commits=commits)
                with hold(Path(folder)) as found:
                    certificates[name] = certify(found, size, partial(_say, progress, name))
            except Missing as error:
                skipped[name] = str(error)
    return CertifyFigures(certificates, skipped)


def _say(progress: Progress, name: str, what: str) -> None:
    progress(f"{name}: {what}")


def checks_markdown() -> str:
    """The checks as a table."""
    rows = (f"| {check.value} | {check.asked} | {check.follows} |" for check in Check)
    return "\n".join(["| check | the catalog must | if it does not |", "|---|---|---|", *rows]) + "\n"


def kept_in(folder: Path) -> Documents:
    """The certificates in a folder, by name of the catalog."""
    documents = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    return {document.get("name", stem): document for stem, document in documents.items()}


def results_markdown(documents: Documents) -> str:
    """The verdicts as a table, and what is broken; a sentence if there are none."""
    if not documents:
        return "None yet.\n"
    lines = ["| catalog | verdict | check by check | product |", "|---|---|---|---|"]
    lines += [_row(name, document) for name, document in documents.items()]
    return "\n".join([*lines, "", *_broken(documents)]).rstrip() + "\n"


def _row(name: str, document: Document) -> str:
    standings = [one["standing"] for one in document["checks"]]
    told = ", ".join(f"{count} {word.value}" for word in Standing if (count := standings.count(word.value)))
    return f"| {name} | {document['verdict']} | {told} | {document['product']} |"


def _broken(documents: Documents) -> Iterator[str]:
    for name, document in documents.items():
        for one in document["checks"]:
            if one["standing"] == Standing.BROKEN.value:
                yield f"- **{name}**, {one['check']}: {one['found']}"


def _keep(figures: CertifyFigures) -> None:
    for name, certificate in figures.certificates.items():
        file = FOLDER / f"{re.sub('[^a-z0-9.]+', '-', name.lower()).strip('-')}.json"
        document = {"name": name, **certificate.to_json()}
        del document["catalog"]  # it names a folder or a port of this machine
        file.write_text(json.dumps(document, indent=2) + "\n")


def write_tables() -> None:
    """Those of `DOCUMENT`, from the checks and the certificates."""
    found = kept_in(FOLDER)
    ours = {name: found[name] for name in CATALOGS if name in found}
    text = renewed(DOCUMENT.read_text(), "checks", checks_markdown())
    text = renewed(text, "results", results_markdown(ours))
    DOCUMENT.write_text(renewed(text, "sent by users", results_markdown(kept_in(FOLDER / USERS))))


def main(arguments: Sequence[str]) -> int:
    """Ask every catalog, or some, and write the tables, if all of them could be asked."""
    if list(arguments) == ["tables"]:
        write_tables()
        return 0
    figures = run(progress=lambda what: print(what, flush=True), names=arguments)
    for name, why in figures.skipped.items():
        print(f"not asked: {name}: {why}")
    undecided = {name: one for name, one in figures.certificates.items() if one.verdict is Verdict.UNDECIDED}
    for name, certificate in undecided.items():
        for finding in certificate.findings:
            if finding.standing is Standing.UNDECIDED:
                print(f"not decided: {name}, {finding.check.value}: {finding.found}")
    if figures.skipped or undecided:
        return 2
    _keep(figures)
    write_tables()
    return 0 if figures.well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
