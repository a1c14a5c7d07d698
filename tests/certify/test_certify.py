"""Real catalogs are certified and left as they were; one that lies in one way is found out by the check for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog, connect
from lakesink_tools.checks.certify.examine import Certificate, certify
from lakesink_tools.checks.certify.race import Size
from lakesink_tools.checks.certify.verdict import Check, CheckResult, Standing, Verdict
from testkit.http_servers import postgres
from testkit.rest_catalog import RestService
from tests.certify import liars
from tests.doctor import liars as doctors
from tests.doctor.test_swap import Held, files_under

SMALL = Size(writers=4, commits=3, processes=1, seconds=60)


def local(folder: Path) -> dict[str, Any]:
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/w"}


def asked(folder: Path, kind: type[SqlCatalog], *checks: Check) -> Certificate:
    held = Held("liar", local(folder), kind=kind)
    held.open()
    certificate = certify(held, SMALL, checks=checks or tuple(Check))
    assert certificate.left == ()
    assert SqlCatalog("liar", **local(folder)).list_namespaces() == []
    return certificate


@pytest.fixture(params=["sqlite", "in-memory", "rest", pytest.param("postgresql", marks=pytest.mark.soak)])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FoundCatalog]:
    if request.param == "sqlite":
        yield CatalogConfig("lake", local(tmp_path)).find()
    elif request.param == "in-memory":
        properties = {"type": "in-memory", "warehouse": f"file://{tmp_path}/w"}
        yield CatalogConfig(tmp_path.name, properties).find()
    elif request.param == "rest":
        with liars.served(RestService(connect("backing", local(tmp_path)))) as uri:
            yield CatalogConfig("lake", {"type": "rest", "uri": uri}).find()
    else:
        with postgres("p@ss") as server:
            uri = f"postgresql://lake:p%40ss@{server.address}"
            yield CatalogConfig("lake", {"uri": uri, "warehouse": f"file://{tmp_path}/w"}).find()


@pytest.mark.dear
def test_a_real_catalog_is_certified_and_left_as_it_was(found: FoundCatalog, tmp_path: Path) -> None:
    catalog = found.open()
    catalog.create_namespace("own")
    (tmp_path / "w").mkdir(exist_ok=True)
    before = files_under(tmp_path)
    certificate = certify(found, SMALL)
    standings = {finding.check: (finding.standing, finding.found) for finding in certificate.findings}
    assert list(standings) == list(Check)
    assert certificate.verdict is Verdict.SINGLE_TABLE, standings
    assert standings[Check.MULTI_TABLE][0] is Standing.ABSENT
    assert certificate.findings[-2].figures["acknowledged"] == SMALL.writers * SMALL.commits
    assert certificate.left == ()
    assert catalog.list_namespaces() == [("own",)]
    assert files_under(tmp_path) == before


@pytest.mark.soak
def test_writers_in_several_processes_race_each_other(tmp_path: Path) -> None:
    found = CatalogConfig("lake", local(tmp_path)).find()
    found.open()
    size = Size(writers=4, commits=3, processes=2, seconds=60)
    [race] = certify(found, size, checks=[Check.COMPARE_AND_SWAP]).findings
    assert (race.standing, race.figures["acknowledged"]) == (Standing.KEPT, 12), race
    assert race.figures["refused"] > 0


LIARS = [
    (Check.TAG, doctors.LosesTags, "left out the tag"),
    (Check.TAG, doctors.RefusesTags, "no tags here"),
    (Check.FIRST_COMMITS, liars.TakesNoHeadForAnyHead, "that asserted"),
    (Check.FIRST_COMMITS, liars.SlowToWrite, "commits that asserted the same head"),
    (Check.STALE_HEAD, liars.IgnoresHead, "asserted an old head"),
    (Check.STALE_HEAD, doctors.IgnoresAssertions, "asserted an old head"),
    (Check.STALE_TAG, liars.IgnoresTag, "an old tag"),
    (Check.STALE_TAG, liars.TakesNoTagForAnyTag, "no tag where there was one"),
    (Check.TABLE_UUID, liars.IgnoresUuid, "another table's UUID"),
    (Check.SCHEMA, liars.IgnoresSchema, "another schema"),
    (Check.EQUAL_ID, liars.TakesEqualIds, "a second snapshot of the same id"),
    (Check.ALL_OR_NOTHING, liars.PropertiesFirst, "and the table shows it"),
    (Check.OWN_WRITES, liars.ShowsTheLastLook, "Another connection did not see"),
    (Check.OWN_WRITES, doctors.SaysYes, "does not show"),
    (Check.SENT_TWICE, liars.LandsTwice, "2 times in the table"),
    (Check.HISTORY, liars.ForgetsSnapshots, "After 3 commits the branch has 1 snapshot."),
    (Check.COMPARE_AND_SWAP, liars.SlowToWrite, "acknowledged commits are lost"),
    (Check.COMPARE_AND_SWAP, liars.LosesOneInSeven, "acknowledged commits are lost"),
]


@pytest.mark.parametrize(("check", "kind", "words"), LIARS)
def test_a_liar_is_found_out(tmp_path: Path, check: Check, kind: type[SqlCatalog], words: str) -> None:
    certificate = asked(tmp_path, kind, check)
    [finding] = certificate.findings
    assert finding.standing is Standing.BROKEN, finding
    assert words in finding.found
    assert certificate.verdict in (Verdict.NOT_SAFE, Verdict.UNDECIDED)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (liars.TakesNoHeadForAnyHead, Check.FIRST_COMMITS),
        (doctors.LosesTags, Check.TAG),
        (liars.ForgetsSnapshots, Check.HISTORY),
    ],
)
def test_what_nessie_does_wrong_is_found_by_the_check_for_it_alone(
    tmp_path: Path, kind: type[SqlCatalog], check: Check
) -> None:
    findings = asked(tmp_path, kind).findings
    assert [one.check for one in findings if one.standing is Standing.BROKEN] == [check], findings


def test_a_service_that_takes_no_head_for_any_head_is_not_safe_though_lakesink_makes_its_tables_with_one(
    tmp_path: Path,
) -> None:
    backing = liars.TakesNoHeadForAnyHead("backing", **local(tmp_path))
    with liars.served(RestService(backing)) as uri:
        found = CatalogConfig("lake", {"type": "rest", "uri": uri}).find()
        findings = certify(found, SMALL).findings
    assert [one.check for one in findings if one.standing is Standing.BROKEN] == [Check.FIRST_COMMITS], findings


def test_every_check_is_shown_to_fail() -> None:
    assert {check for check, _, _ in LIARS} | {Check.MULTI_TABLE} == set(Check)


def test_a_catalog_without_tags_is_certified_without_the_ledger_tag(tmp_path: Path) -> None:
    certificate = asked(tmp_path, doctors.RefusesTags)
    assert certificate.verdict is Verdict.WITHOUT_TAG, certificate.findings


def test_a_catalog_that_never_answers_a_commit_is_not_decided(tmp_path: Path) -> None:
    certificate = asked(tmp_path, liars.Silent)
    assert certificate.verdict is Verdict.UNDECIDED
    assert {finding.standing for finding in certificate.findings[:-1]} == {Standing.UNDECIDED}, certificate.findings
    assert "no answer" in certificate.findings[-2].found


@pytest.mark.parametrize(
    ("service", "standing", "words"),
    [
        (liars.MultiTableService, Standing.KEPT, "12 commits acknowledged"),
        (liars.OneAfterTheOther, Standing.BROKEN, "refused a commit of two tables but changed one"),
        (liars.LosesUnderARace, Standing.BROKEN, "acknowledged commits are lost"),
    ],
)
def test_a_commit_of_several_tables_is_tried_under_a_race(
    tmp_path: Path, service: type[RestService], standing: Standing, words: str
) -> None:
    with liars.served(service(connect("backing", local(tmp_path)))) as uri:
        finding = multi_table(CatalogConfig("lake", {"type": "rest", "uri": uri}).find())
    assert finding.standing is standing, finding
    assert words in finding.found


def multi_table(found: FoundCatalog) -> CheckResult:
    [finding] = certify(found, SMALL, checks=[Check.MULTI_TABLE]).findings
    return finding
