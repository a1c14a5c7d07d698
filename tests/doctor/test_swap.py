"""A catalog that does not keep its word is told by doing; one that does is proved, and nothing is left behind."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog, connect
from lakesink_tools.checks.certify.state import Sent, State, broken_promise
from lakesink_tools.checks.doctor.catalog import prove_catalog
from lakesink_tools.checks.doctor.finding import Finding, Standing
from servers.ports import free_port
from testkit.http_servers import postgres
from testkit.rest_catalog import rest_catalog
from tests.doctor import liars


@dataclass(frozen=True, slots=True)
class Held(FoundCatalog):
    """A catalog that a test holds open; every driver gets a connection of its own."""

    kind: type[SqlCatalog] = SqlCatalog

    def open(self, *, create: bool = True) -> Catalog:  # noqa: ARG002 - it is there
        return self.kind(self.name, **self.properties)


def proved(found: FoundCatalog) -> dict[str, Finding]:
    return {finding.check: finding for finding in prove_catalog(found, found.open())}


def files_under(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.name.startswith("catalog.db")}


@pytest.fixture(params=["sqlite", "in-memory", "postgresql", "rest"])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FoundCatalog]:
    warehouse: dict[str, Any] = {"warehouse": f"file://{tmp_path}/w"}
    local = warehouse | {"uri": f"sqlite:///{tmp_path}/catalog.db"}
    if request.param == "sqlite":
        yield CatalogConfig("lake", local).find()
    elif request.param == "in-memory":
        yield CatalogConfig(tmp_path.name, warehouse | {"type": "in-memory"}).find()
    elif request.param == "rest":
        with rest_catalog(connect("backing", local)) as (uri, _):
            yield CatalogConfig("lake", {"type": "rest", "uri": uri}).find()
    else:
        with postgres("p@ss") as server:
            yield CatalogConfig("lake", warehouse | {"uri": f"postgresql://lake:p%40ss@{server.address}"}).find()


def test_a_certified_catalog_is_proved_and_left_as_it_was(found: FoundCatalog, tmp_path: Path) -> None:
    catalog = found.open()
    catalog.create_namespace("own")
    (tmp_path / "w").mkdir(exist_ok=True)
    before = files_under(tmp_path)
    findings = prove_catalog(found, catalog)
    assert [(finding.check, finding.standing) for finding in findings] == [
        ("compare-and-swap", Standing.OK),
        ("data files", Standing.OK),
        ("metadata files", Standing.OK),
        ("clock", Standing.OK),
    ], findings
    assert "CommitFailedException" in findings[0].found
    assert "5 races" in findings[0].found
    assert catalog.list_namespaces() == [("own",)]
    assert files_under(tmp_path) == before


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (liars.IgnoresAssertions, "It accepted two commits that asserted the same head"),
        (liars.LastOneWins, "It accepted two commits that asserted the same head"),
        (liars.ChecksThenWrites, "It accepted two commits that asserted the same head"),
        (liars.SaysYes, "It accepted a commit that the table does not show"),
    ],
)
def test_a_catalog_that_breaks_its_promise_fails(tmp_path: Path, kind: type[SqlCatalog], words: str) -> None:
    held = Held("liar", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}, kind=kind)
    findings = proved(held)
    assert findings["compare-and-swap"].standing is Standing.FAILED
    assert findings["compare-and-swap"].found.startswith("[LAKESINK_CATALOG_NOT_ATOMIC]")
    assert words in findings["compare-and-swap"].found
    assert "tags" not in findings
    assert held.open().list_namespaces() == []


@pytest.mark.parametrize("kind", [liars.LosesTags, liars.RefusesTags])
def test_a_catalog_without_tags_is_good_enough_without_the_ledger_tag(tmp_path: Path, kind: type[SqlCatalog]) -> None:
    held = Held("plain", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}, kind=kind)
    findings = proved(held)
    assert findings["compare-and-swap"].standing is Standing.OK
    assert findings["tags"].standing is Standing.WARNING
    assert "ledger_tag=False" in findings["tags"].fix
    assert ("[LAKESINK_CATALOG_WITHOUT_TAGS]" in findings["tags"].found) is (kind is liars.LosesTags)
    assert held.open().list_namespaces() == []
    assert files_under(tmp_path / "w") == set()


YES, NO = "", "CommitFailedException"


@pytest.mark.parametrize(
    ("first", "second", "shown", "head", "words"),
    [
        (YES, NO, {1}, 1, ""),
        (NO, YES, {9, 2}, 2, ""),
        (NO, NO, {9}, 9, ""),
        (NO, NO, {1}, 1, ""),  # an answer was lost on the way, and the commit landed
        (YES, YES, {1, 2}, 2, "accepted two"),
        (YES, YES, {2}, 2, "accepted two"),
        (YES, NO, set(), None, "does not show"),
        (YES, NO, {2}, 2, "does not show"),
        (YES, NO, {1, 2}, 2, "shows two"),
        (YES, NO, {1, 9}, 9, "another snapshot"),
    ],
)
def test_what_rival_commits_leave_tells_whether_the_promise_was_kept(
    first: str, second: str, shown: set[int], head: int | None, words: str
) -> None:
    state = State("u", head, tag=None, entry=None, snapshots=tuple((snapshot, None) for snapshot in shown))
    told = broken_promise([Sent((1,), first), Sent((2,), second)], state)
    assert (words in told) if words else told == ""


def test_a_catalog_whose_storage_does_not_answer_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    storage = {"s3.endpoint": f"http://127.0.0.1:{free_port()}", "s3.region": "us-east-1", "warehouse": "s3://b/w"}
    held = Held("away", {"uri": f"sqlite:///{tmp_path}/catalog.db", **storage}, kind=SqlCatalog)
    [finding] = prove_catalog(held, held.open())
    assert (finding.check, finding.standing) == ("compare-and-swap", Standing.FAILED)
    assert "LAKESINK_STORAGE_UNREACHABLE" in finding.found


def test_a_catalog_in_which_nothing_may_be_made_is_not_proved_and_does_not_fail(tmp_path: Path) -> None:
    class Closed(SqlCatalog):
        def create_namespace(self, namespace: Any, properties: Any = None) -> None:
            raise PermissionError(f"{namespace} {properties}")

    held = Held("closed", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}, kind=Closed)
    [finding] = prove_catalog(held, held.open())
    assert (finding.check, finding.standing) == ("compare-and-swap", Standing.WARNING)
    assert "no scratch table" in finding.found
    assert "may create a namespace" in finding.fix


def test_what_cannot_be_dropped_is_named(tmp_path: Path) -> None:
    class Sticky(SqlCatalog):
        def drop_namespace(self, namespace: Any) -> None:
            raise PermissionError(str(namespace))

    held = Held("sticky", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}, kind=Sticky)
    left = proved(held)["scratch"]
    [(namespace,)] = held.open().list_namespaces()
    assert left.standing is Standing.WARNING
    assert namespace in left.found
