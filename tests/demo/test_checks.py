"""The demo's claims can fail: each is shown something that is not so."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakesink_tools.cli.output import NOT_WELL, OK
from lakesink_tools.cli.run.demo import _report
from lakesink_tools.demo.checks import Check, DiedAfterCommit, DiedBeforeCommit, source_checks
from lakesink_tools.demo.evidence import PreparedRecord, TableFacts, compare
from lakesink_tools.demo.flights import ALL_ROWS, COLUMNS, DailyFiles, write_daily_files
from lakesink_tools.demo.place import Place
from lakesink_tools.demo.scenario import BatchPlan, Ending
from lakesink_tools.past.records import Record

NULLS = {"dep_time": 8255, "dep_delay": 8255, "arr_time": 8713, "arr_delay": 9430, "air_time": 9430, "tailnum": 2512}


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> DailyFiles:
    return write_daily_files(tmp_path_factory.mktemp("year"))


@pytest.fixture
def month(tmp_path: Path) -> DailyFiles:
    return write_daily_files(tmp_path, 27_004)


def test_the_year_is_365_files_of_growing_age_with_the_types_that_were_meant(year: DailyFiles) -> None:
    files = sorted(year.folder.iterdir())
    ages = [file.stat().st_mtime for file in files]

    assert len(files) == len(year.rows) == 365
    assert sum(year.rows) == ALL_ROWS
    assert ages == sorted(set(ages))
    assert tuple(pq.read_metadata(file).num_rows for file in files) == year.rows
    assert {field.name: field.type for field in pq.read_schema(files[-1])} == COLUMNS


def test_the_year_is_counted_alike_in_text_and_files(year: DailyFiles) -> None:
    compared = compare(year.csv, ALL_ROWS, [str(file) for file in year.folder.iterdir()])

    assert compared.source == compared.table
    assert (compared.source.rows, compared.source.distance) == (336_776, 350_217_607)
    assert compared.source.nulls == NULLS
    assert all(check.holds for check in source_checks(compared))


@pytest.mark.parametrize(
    ("days", "broken"),
    [
        (slice(1, None), {"rows", "sum(distance)", "rows of the source that the table lacks"}),
        (slice(None), set()),
        ([*range(31), 30], {"rows", "sum(distance)", "rows of the table that the source lacks"}),
    ],
    ids=["a day missing", "all", "a day twice"],
)
def test_days_missing_or_doubled_are_noticed(month: DailyFiles, days: slice | list[int], broken: set[str]) -> None:
    files = sorted(str(file) for file in month.folder.iterdir())
    chosen = files[days] if isinstance(days, slice) else [files[position] for position in days]

    failed = {check.claim for check in source_checks(compare(month.csv, 27_004, chosen)) if not check.holds}

    assert {claim for claim in failed if not claim.startswith("NULLs")} == broken


def test_the_plan_cuts_the_year_into_25_batches_and_kills_in_two_of_them(year: DailyFiles) -> None:
    plan = BatchPlan.of(year)

    assert (plan.batches, plan.files_per_batch) == (25, 15)
    assert 0 < plan.recovered < plan.replayed < plan.batches - 1
    assert plan.rows_until(0) == sum(year.rows[:15])
    assert plan.rows_until(plan.batches - 1) == ALL_ROWS


def test_the_smallest_demo_still_has_two_batches_to_die_in(tmp_path: Path) -> None:
    plan = BatchPlan.of(write_daily_files(tmp_path, 1_000))

    assert plan.batches == 2
    assert plan.recovered < plan.replayed


def batch(batch_id: int, snapshot_id: int) -> Record:
    return Record(
        sink="flights",
        branch="main",
        kind="stream",
        batch_id=batch_id,
        snapshot_id=snapshot_id,
        sequence_number=1,
        rows=1,
        files=1,
        bytes=1,
        offsets="",
        committed_at=datetime.now(UTC),
        outcome="committed",
        accepted="",
        missing_inputs=0,
        in_branch=True,
    )


BEFORE = TableFacts(batches=(batch(0, 70),), files={70: frozenset({"a"})}, on_disk=frozenset({"a", "b", "c"}))
AFTER = TableFacts(
    batches=(batch(0, 70), batch(1, 71)),
    files={70: frozenset({"a"}), 71: frozenset({"b", "c"})},
    on_disk=frozenset({"a", "b", "c"}),
)
RECOVERED = DiedBeforeCommit(1, PreparedRecord(71, frozenset({"b", "c"})), BEFORE)
REPLAYED = DiedAfterCommit(1, AFTER)


@pytest.mark.parametrize("death", [RECOVERED, REPLAYED])
def test_a_batch_that_came_through_a_death_holds_every_claim(death: DiedBeforeCommit | DiedAfterCommit) -> None:
    assert all(check.holds for check in death.checks(AFTER))


@pytest.mark.parametrize("death", [RECOVERED, REPLAYED])
@pytest.mark.parametrize(
    "end",
    [
        replace(AFTER, batches=AFTER.batches[:1]),
        replace(AFTER, batches=(*AFTER.batches, batch(1, 72))),
        replace(AFTER, batches=(batch(0, 70), batch(1, 72)), files={70: frozenset({"a"}), 72: frozenset({"d", "e"})}),
        replace(AFTER, files={70: frozenset({"a"}), 71: frozenset({"b"})}),
        replace(AFTER, on_disk=frozenset({"a", "b", "c", "d"})),
    ],
    ids=["batch lost", "batch twice", "batch written again", "file lost", "orphan written"],
)
def test_a_batch_that_did_not_come_through_breaks_a_claim(
    death: DiedBeforeCommit | DiedAfterCommit, end: TableFacts
) -> None:
    assert not all(check.holds for check in death.checks(end))


@pytest.mark.parametrize(("found", "exit_code", "words"), [(1, OK, "Every claim holds"), (2, NOT_WELL, "NOT PROVED")])
def test_one_broken_claim_breaks_the_demo(tmp_path: Path, found: int, exit_code: int, words: str) -> None:
    checks = (Check("rows", 5, 5), Check("snapshots of a batch", 1, found))
    ending = Ending(
        rows=5,
        batches=1,
        drivers=1,
        killed=0,
        recovered=0,
        skipped=0,
        orphan_files=0,
        as_of=(0, 70),
        checks=checks,
        seconds=1.0,
    )

    report = _report(Place(tmp_path), ending, [])

    assert report.exit_code == exit_code
    assert words in report.title
    assert report.document["proved"] is (exit_code == OK)
    assert [row[3] for row in report.rows] == ["", "" if found == 1 else "<<<"]
