"""Which catalog, why that one, and whether it answers: in bounded time, and without a secret."""

from pathlib import Path

import pytest

from lakesink_catalog.connect.catalog import CatalogConfig, connect
from lakesink_tools.checks.doctor.catalog import check_catalog, prove_catalog
from lakesink_tools.checks.doctor.finding import Finding, Standing
from servers.ports import free_port
from testkit.http_servers import rest_server
from testkit.rest_catalog import RestService
from tests.certify.liars import NessieLike, TakesNoHeadForAnyHead, served

CANARY = "c4n4ry-Sw0rdfish"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    monkeypatch.delenv("LAKESINK_HOME", raising=False)


def looked(name: str | None = None, longest_seconds: float = 60) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_catalog(name, longest_seconds).findings}


def test_without_configuration_it_is_the_embedded_catalog_of_this_folder(tmp_path: Path) -> None:
    findings = looked()
    assert findings["choice"].standing is Standing.OK
    assert f"{tmp_path}/lakehouse, in the working folder" in findings["choice"].found
    assert findings["answers"].standing is Standing.OK
    assert "does not exist yet" in findings["answers"].found
    assert list(tmp_path.iterdir()) == []


def test_lakesink_home_is_named_where_it_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESINK_HOME", str(tmp_path / "lake"))
    assert f"{tmp_path}/lake, by LAKESINK_HOME" in looked()["choice"].found


def test_a_configured_catalog_that_is_not_the_default_is_pointed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "http://127.0.0.1:1")
    finding = looked()["choice"]
    assert finding.standing is Standing.WARNING
    assert "has prod, none of them the default" in finding.found
    assert "catalog='prod'" in finding.fix


def test_the_places_of_the_configuration_are_named_and_not_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text("default-catalog: prod\n")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/catalog.db?password={CANARY}")
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__URI", "http://127.0.0.1:1")
    found = looked()["choice"].found
    assert "PyIceberg's default catalog" in found
    assert str(tmp_path / ".pyiceberg.yaml") in found
    assert "PYICEBERG_CATALOG__PROD__URI" in found
    assert "OTHER" not in found
    assert CANARY not in found


@pytest.mark.parametrize(
    ("properties", "standing", "words"),
    [
        ({"TYPE": "dynamodb"}, Standing.FAILED, "to which PyIceberg cannot commit"),
        ({"TYPE": "hadoop", "WAREHOUSE": "/lake"}, Standing.FAILED, "'hadoop', which lakesink does not support"),
        ({"WAREHOUSE": "/lake", "URI": "nowhere"}, Standing.FAILED, "neither uri nor type"),
    ],
)
def test_a_catalog_without_an_atomic_swap_is_refused_by_its_kind(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], standing: Standing, words: str
) -> None:
    for key, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{key}", value)
    finding = looked("prod")["choice"]
    assert finding.standing is standing
    assert words in finding.found


@pytest.mark.parametrize(("kind", "standing"), [("hive", Standing.WARNING), ("sql", Standing.OK)])
def test_a_kind_that_no_test_proves_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, standing: Standing
) -> None:
    uri = f"thrift://127.0.0.1:{free_port()}" if kind == "hive" else f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", kind)
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
    assert looked("prod")["kind"].standing is standing


def test_an_unknown_name_is_told_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "http://127.0.0.1:1")
    finding = looked("prd")["choice"]
    assert finding.standing is Standing.FAILED
    assert "Did you mean 'prod'?" in finding.fix


@pytest.mark.timeout(120)
def test_a_catalog_that_is_gone_is_told_at_once_and_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"http://me:{CANARY}@127.0.0.1:{free_port()}")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", CANARY)
    findings = looked("prod")
    assert findings["answers"].standing is Standing.FAILED
    assert "LAKESINK_CATALOG_UNREACHABLE" in findings["answers"].found
    assert CANARY not in str(findings)


@pytest.mark.timeout(120)
def test_a_catalog_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with rest_server({"/v1/namespaces": None}) as (uri, _):
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
        finding = looked("prod", longest_seconds=1)["answers"]
    assert finding.standing is Standing.FAILED
    assert "no answer within 1 s" in finding.found


def test_a_database_that_is_not_there_yet_warns_and_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/catalog.db")
    assert looked("prod")["answers"].standing is Standing.WARNING
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_that_does_not_protect_first_snapshots_is_a_warning_of_the_write_probe(tmp_path: Path) -> None:
    local = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    with served(RestService(TakesNoHeadForAnyHead("backing", **local))) as uri:
        found = CatalogConfig("prod", {"type": "rest", "uri": uri}).find()
        findings = {one.check: one for one in prove_catalog(found, found.open())}
    assert findings["first snapshot"].standing is Standing.WARNING
    assert "lakesink first-snapshot" in findings["first snapshot"].fix
    assert {one.standing for one in findings.values()} == {Standing.OK, Standing.WARNING}


def test_a_catalog_that_is_known_to_leave_tags_out_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    with served(NessieLike(connect("backing", local))) as uri:
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
        tags = looked("prod")["tags"]
    assert tags.standing is Standing.WARNING
    assert tags.found.startswith("[LAKESINK_CATALOG_WITHOUT_TAGS] Nessie")
