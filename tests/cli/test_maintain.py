"""The command that maintains a table: what it says, its exit codes, and what status and doctor say of health."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog

from lakesink.sinks.iceberg.upkeep.health import Health
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Policy, Verify
from lakesink.sinks.iceberg.upkeep.reports import (
    BUDGET,
    FAILED,
    NOTHING_DUE,
    TURN,
    GroupDone,
    GroupDue,
    LeftFile,
    Plan,
    Report,
)
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.errors import CatalogError, LakesinkError, SettingsError
from lakesink_protocol.ledger import MAINTENANCE
from lakesink_tools.checks.doctor.finding import Standing
from lakesink_tools.checks.doctor.table import check_health
from lakesink_tools.cli.main import main
from testkit.batches import Writer

Run = Callable[..., Result]
KIB = 1024
ROW = pa.table({"id": pa.array([1], pa.int64())})
SICK = Health(140, 120, 9000 * KIB, 5000, 600, 3, 34, 1200 * KIB)
WELL = Health(3, 0, 8000 * KIB, 4400, 0, 0, 2, 40 * KIB)
DUE = GroupDue("day=2026-01-01", 40, 3000 * KIB, 1700)
DONE = GroupDone(77, "day=2026-01-01", 40, 1, 3000 * KIB, 2600 * KIB, 1500, 200, 2, 1.25)
PLAN = Plan((DUE,), (), SICK, WELL)
EQUALITY = LeftFile("s3://lake/a.parquet", "equality-deletes: lakesink does not apply them")
LOST = LeftFile("s3://lake/b.parquet", "lost: another writer was quicker")


class Played:
    """Looks and runs of a maintenance, which the tests set, and the policies that they got."""

    def __init__(self) -> None:
        self.plan = PLAN
        self.report = Report(SICK, WELL, (DONE,), (), NOTHING_DUE)
        self.policies: list[Policy] = []
        self.runs = 0

    def look(self, maintenance: Maintenance) -> Plan:
        self.policies.append(maintenance.policy)
        return self.plan

    def run(self, progress: Callable[[GroupDone], None]) -> Report:
        self.runs += 1
        for group in self.report.groups:
            progress(group)
        return self.report


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    found = Played()
    monkeypatch.setattr(Maintenance, "look", property(lambda one: partial(found.look, one)))
    monkeypatch.setattr(Maintenance, "run", property(lambda _: found.run))
    return found


@pytest.fixture
def catalog(home: Path) -> Catalog:
    assert not home.exists()
    catalog = connect()
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    Writer(catalog).commit(0, rows=10)
    return catalog


@pytest.fixture
def run(catalog: Catalog) -> Run:
    assert catalog.name
    return lambda *arguments: CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def found(result: Result, exit_code: int = 0) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def test_a_run_says_what_it_did_and_saved(run: Run) -> None:
    result = run("maintain", "demo.events")
    assert result.exit_code == 0, result.output
    title, head, before, after, *lines = result.stdout.splitlines()
    assert title == "demo.events in lakehouse: 1 group of files compacted"
    assert head.split() == ["files", "small", "rows", "deleted", "manifests", "metadata", "size", "full", "scan"]
    assert before.split() == ["before", "140", "120", "12.0%", "34", "1.2", "MiB", "8.8", "MiB", "3.6", "s"]
    assert after.split() == ["after", "3", "0", "0.0%", "2", "40.0", "KiB", "7.8", "MiB", "0.18", "s"]
    group = (
        "day=2026-01-01: 40 files into 1, 2.9 MiB into 2.5 MiB, 1,500 rows, without 200 deleted rows,"
        " 2 rows deleted meanwhile, 1.2 s"
    )
    assert lines == [
        group,
        "Saved 137 files, 1000 KiB, and about 3.5 s of 3.6 s of a full scan.",
        "Nothing more is due. Next: run it again when lakesink status says what it would save.",
    ]
    assert result.stderr.splitlines()[0].endswith(group)  # no terminal: a line for each group


def test_json_has_every_group_file_and_figure(run: Run, played: Played) -> None:
    played.report = replace(played.report, left=(EQUALITY,))
    document = found(run("maintain", "demo.events", "--output", "json"))
    assert {name: document[name] for name in ("table", "catalog", "branch", "dry_run", "managed_by", "ended")} == {
        "table": "demo.events",
        "catalog": "lakehouse",
        "branch": "main",
        "dry_run": False,
        "managed_by": None,
        "ended": NOTHING_DUE,
    }
    assert document["groups"][0]["snapshot_id"] == 77
    assert document["left"] == [{"path": EQUALITY.path, "reason": EQUALITY.reason}]
    assert (document["before"]["deleted_share"], document["after"]["small_files"]) == (0.12, 0)
    assert document["before"]["scan_seconds"] > document["after"]["scan_seconds"]


def test_options_become_the_policy(run: Run, played: Played) -> None:
    options = ("--budget", "10 min", "--target-file-size", "64MB", "--min-input-files", "3", "--where", "day = '1'")
    run("maintain", "demo.events", *options, "--verify", "rows")
    assert played.policies == [
        Policy(64 * KIB**2, 3, "day = '1'", timedelta(minutes=10), gate=False, verify=Verify.ROWS)
    ]
    run("maintain", "demo.events")
    assert played.policies[1] == Policy()


def test_a_dry_run_changes_nothing_and_says_what_a_run_would_save(run: Run, played: Played) -> None:
    result = run("maintain", "demo.events", "--dry-run")
    assert (result.exit_code, played.runs) == (0, 0)
    title, _, now, expected, *lines = result.stdout.splitlines()
    assert title == "demo.events in lakehouse: 1 group of files due"
    assert [now.split()[0], expected.split()[0]] == ["now", "expected"]
    assert lines == [
        "day=2026-01-01: 40 files, 2.9 MiB, 1,700 rows",
        "A run would save 137 files, 1000 KiB, and about 3.5 s of 3.6 s of a full scan.",
        "Nothing was changed. Next: the same command without --dry-run.",
    ]


def test_a_table_where_nothing_is_due_is_well(run: Run, played: Played) -> None:
    played.report = Report(WELL, WELL, (), (), NOTHING_DUE)
    played.plan = Plan((), (), WELL, WELL)
    result = run("maintain", "demo.events")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "demo.events in lakehouse: nothing is due")
    planned = run("maintain", "demo.events", "--dry-run").stdout.splitlines()
    assert planned[-2:] == ["Nothing is due.", "Nothing was changed."]  # there is no run to advise


@pytest.mark.parametrize(
    ("left", "ended", "exit_code"),
    [
        ((EQUALITY,), NOTHING_DUE, 0),
        ((), BUDGET, 0),
        ((LOST,), NOTHING_DUE, 1),
        ((EQUALITY, replace(LOST, reason="proof: rows differ")), NOTHING_DUE, 1),
        ((), TURN, 1),
        ((replace(LOST, path="s3://lake/v2.metadata.json", reason="failed: OSError: away"),), FAILED, 1),
    ],
)
def test_the_exit_code_is_1_if_files_stay_that_a_run_compacts(
    run: Run, played: Played, left: tuple[LeftFile, ...], ended: str, exit_code: int
) -> None:
    played.report = replace(played.report, left=left, ended=ended)
    assert run("maintain", "demo.events").exit_code == exit_code


def test_a_run_that_failed_does_not_say_that_nothing_is_due(run: Run, played: Played) -> None:
    played.report = Report(SICK, SICK, (), (replace(LOST, reason="failed: OSError: away"), EQUALITY), NOTHING_DUE)
    title, *_, end = run("maintain", "demo.events").stdout.splitlines()
    assert title == "demo.events in lakehouse: 0 groups of files compacted"
    assert end == "Nothing else is due. Next: see what is left and why, and run it again."


def test_files_that_stay_are_told_by_their_reason(run: Run, played: Played) -> None:
    others = tuple(replace(EQUALITY, path=f"s3://user:c4n4ry@lake/{at}.parquet") for at in range(3))
    played.report = replace(played.report, left=(LOST, *others))
    result = run("maintain", "demo.events")
    assert "c4n4ry" not in result.output + run("maintain", "demo.events", "--output", "json").output
    told = [line for line in result.stdout.splitlines() if line.startswith("Left: ")]
    assert told == [
        "Left: 3 files, equality-deletes: lakesink does not apply them; for example s3://***@lake/0.parquet",
        "Left: 1 file, lost: another writer was quicker; for example s3://lake/b.parquet",
    ]


def test_many_groups_are_told_by_the_worst(run: Run, played: Played) -> None:
    played.report = replace(played.report, groups=(DONE,) * 7)
    result = run("maintain", "demo.events")
    assert result.stdout.count("40 files into 1") == 5
    assert "And 2 groups more; --output json has all." in result.stdout
    assert len(found(run("maintain", "demo.events", "--output", "json"))["groups"]) == 7


def test_a_table_of_another_service_is_left_alone(run: Run, played: Played, catalog: Catalog) -> None:
    with catalog.load_table("demo.events").transaction() as change:
        change.set_properties({"self-optimizing.enabled": "true"})
    result = run("maintain", "demo.events")
    assert (result.exit_code, played.runs) == (0, 0)
    warning = (
        "Apache Amoro maintains this table (the table's property self-optimizing.enabled): lakesink leaves it alone."
    )
    assert result.stdout.splitlines()[0] == "demo.events in lakehouse: left alone"
    assert warning in result.stdout
    assert warning in run("status", "demo.events").stdout
    assert found(run("maintain", "demo.events", "--output", "json"))["managed_by"] == "Apache Amoro"


def test_status_shows_the_health_and_the_command(run: Run, played: Played) -> None:
    lines = run("status", "demo.events").stdout.splitlines()
    at = lines.index(
        "Health of main: 120 of 140 files small, 12% of 5,000 rows deleted, 34 manifests, 1.2 MiB of metadata."
    )
    assert lines[at + 1] == (
        "lakesink maintain demo.events would save 137 files, 1000 KiB, and about 3.5 s of 3.6 s of a full scan."
    )
    document = found(run("status", "demo.events", "--output", "json"))
    assert document["health"]["main"]["groups"] == 1
    assert document["health"]["main"]["now"]["deleted_share"] == 0.12
    played.plan = Plan((), (), WELL, WELL)
    assert "lakesink maintain" not in run("status", "demo.events").stdout


@pytest.mark.parametrize(
    "error",
    [
        CatalogError.of("MANIFEST_UNREADABLE", why="it is gone", path="m.avro"),
        SettingsError.of("SETTING_INVALID", name="write.target-file-size-bytes", text="many", why="It is no number."),
    ],
)
def test_status_of_a_table_whose_health_is_not_known_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: LakesinkError
) -> None:
    def fail(_: Maintenance) -> Plan:
        raise error

    monkeypatch.setattr(Maintenance, "look", fail)
    result = run("status", "demo.events")
    assert result.exit_code == 0
    assert "Health of main: not known. " in result.stdout
    assert "unknown" in found(run("status", "demo.events", "--output", "json"))["health"]["main"]


def test_doctor_warns_of_what_a_run_would_save(catalog: Catalog, played: Played) -> None:
    def looked() -> Any:
        [finding] = check_health("demo.events --catalog prod", catalog.load_table("demo.events"))
        return finding

    finding = looked()
    assert finding.standing is Standing.WARNING
    assert finding.found.startswith("main: 120 of 140 files small, 12% of 5,000 rows deleted, 34 manifests")
    assert finding.fix.startswith("lakesink maintain demo.events --catalog prod would save 137 files")
    played.plan = replace(PLAN, expected=replace(SICK, files=139))
    assert looked().standing is Standing.OK
    played.plan = Plan((), (), WELL, WELL)
    assert (looked().standing, looked().fix) == (Standing.OK, "")


def test_log_names_what_was_done_to_the_table(run: Run, catalog: Catalog) -> None:
    journal = {"files": 12, "into": 1, "rows": 1500, "bytes_before": 3 * KIB, "bytes_after": 2 * KIB, "dropped": 4}
    for one in ({**journal, "carried": 0, "verified": "digest"}, {**journal, "carried": None}, "[1, 2", ["x"]):
        text = one if isinstance(one, str) else json.dumps(one)
        catalog.load_table("demo.events").append(ROW, snapshot_properties={MAINTENANCE: text})
    lines = [line for line in run("log", "demo.events").stdout.splitlines() if line.startswith("Maintained ")]
    document = found(run("log", "demo.events", "--output", "json"))
    [told] = document["maintenance"]
    assert [line.partition(": ")[2] for line in lines] == [
        "12 files into 1, 3.0 KiB into 2.0 KiB, 1,500 rows, without 4 deleted rows; proved by digest."
    ]
    assert f"in snapshot {told['snapshot_id']}: " in lines[0]
    assert (told["files"], told["verified"], document["retained"]) == (12, "digest", 1)
    assert found(run("log", "demo.events", "--sink", "events", "--output", "json"))["maintenance"] == []
