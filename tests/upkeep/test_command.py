"""``lakesink maintain`` on real files of a real table: rows, exit codes, what status, doctor and log say afterwards."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_tools.cli.main import main

HOURS, IDS = 6, 30
Run = Callable[..., Result]
TABLE = "demo.visits"


@pytest.fixture
def catalog(home: Path) -> Catalog:
    assert not home.exists()
    catalog = connect()
    table = create_table(catalog, TABLE, pa.schema([("id", pa.int64()), ("region", pa.string())]), "region")
    for hour in range(HOURS):
        ids = range(hour * IDS, hour * IDS + IDS)
        regions = ["east" if one % 2 else "west" for one in ids]
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "region": regions}))
    return catalog


@pytest.fixture
def run(catalog: Catalog) -> Run:
    assert catalog.name
    return lambda *arguments: CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def found(result: Result, exit_code: int = 0) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def rows(catalog: Catalog) -> list[tuple[int, str]]:
    scanned = catalog.load_table(TABLE).scan().to_arrow()
    return sorted(zip(scanned["id"].to_pylist(), scanned["region"].to_pylist(), strict=True))


def files(catalog: Catalog) -> int:
    return int(catalog.load_table(TABLE).inspect.files().num_rows)


@pytest.mark.parametrize("verify", ["digest", "rows"])
def test_a_run_makes_one_file_of_each_partition_and_the_next_has_nothing_to_do(
    run: Run, catalog: Catalog, verify: str
) -> None:
    before = rows(catalog)
    document = found(run("maintain", TABLE, "--verify", verify, "--output", "json"))
    assert (rows(catalog), files(catalog)) == (before, 2)
    groups = sorted((one["partition"], one["files"], one["into"], one["rows"]) for one in document["groups"])
    assert groups == [(f"region={region}", HOURS, 1, HOURS * IDS // 2) for region in ("east", "west")]
    assert (document["before"]["files"], document["after"]["files"], document["left"]) == (2 * HOURS, 2, [])
    again = run("maintain", TABLE)
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, f"{TABLE} in lakehouse: nothing is due")
    told = found(run("log", TABLE, "--output", "json"), 1)["maintenance"]
    assert [(one["files"], one["into"], one["verified"]) for one in told] == [(HOURS, 1, verify)] * 2


def test_a_dry_run_writes_nothing_and_a_condition_takes_some_partitions(run: Run, catalog: Catalog, home: Path) -> None:
    before = {path: path.stat().st_size for path in home.rglob("*") if "catalog" not in path.name}
    document = found(run("maintain", TABLE, "--dry-run", "--where", "region = 'east'", "--output", "json"))
    assert [one["partition"] for one in document["groups"]] == ["region=east"]
    assert document["expected"]["files"] == HOURS + 1
    assert {path: path.stat().st_size for path in home.rglob("*") if "catalog" not in path.name} == before
    found(run("maintain", TABLE, "--where", "region = 'east'", "--output", "json"))
    assert files(catalog) == HOURS + 1


def test_a_wrong_condition_is_refused_before_anything_changes(run: Run, catalog: Catalog) -> None:
    location = catalog.load_table(TABLE).metadata_location
    error = found(run("maintain", TABLE, "--where", "id = 7", "--output", "json"), 2)["error"]
    assert error["code"] == "LAKESINK_OPTION_INVALID"
    assert catalog.load_table(TABLE).metadata_location == location


def test_a_branch_that_is_not_there_is_refused(run: Run, catalog: Catalog) -> None:
    error = found(run("maintain", TABLE, "--branch", "mian", "--output", "json"), 2)["error"]
    assert (error["code"], error["action"]) == ("LAKESINK_BRANCH_MISSING", "Did you mean 'main'?")
    assert files(catalog) == 2 * HOURS


def test_a_size_that_is_no_larger_than_a_footer_is_refused(run: Run, catalog: Catalog) -> None:
    result = run("maintain", TABLE, "--target-file-size", "1")
    assert (result.exit_code, "of 16384 bytes at least" in result.stderr) == (2, True)
    assert files(catalog) == 2 * HOURS


def test_a_size_given_overrides_a_malformed_property_as_its_message_says(run: Run, catalog: Catalog) -> None:
    with catalog.load_table(TABLE).transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "banana"})
    refused = run("maintain", TABLE)
    assert (refused.exit_code, "or give the option that overrides it" in refused.stderr) == (2, True)
    assert "Nothing was written." in refused.stderr
    assert found(run("maintain", TABLE, "--target-file-size", "64MB", "--output", "json"))["ended"] == "nothing is due"
    assert files(catalog) == 2


def test_a_condition_on_a_table_without_partitions_is_told_that_there_are_none(run: Run, catalog: Catalog) -> None:
    create_table(catalog, "demo.plain", pa.schema([("id", pa.int64())]))
    refused = run("maintain", "demo.plain", "--where", "id = 1")
    assert (refused.exit_code, "It has: none" in refused.stderr) == (2, True)


def test_fewer_files_than_the_least_stay(run: Run, catalog: Catalog) -> None:
    document = found(run("maintain", TABLE, "--min-input-files", str(HOURS + 1), "--output", "json"))
    assert (document["groups"], files(catalog)) == ([], 2 * HOURS)


def test_status_offers_a_run_until_one_was_done(run: Run) -> None:
    def told() -> Any:
        result = run("status", TABLE, "--output", "json")
        return json.loads(result.stdout)["health"]["main"]

    before = told()
    assert (before["groups"], before["now"]["small_files"]) == (2, 2 * HOURS)
    run("maintain", TABLE)
    after = told()
    assert (after["groups"], after["now"]["small_files"]) == (0, 2)
    assert after["now"]["scan_seconds"] < before["now"]["scan_seconds"]
    assert f"lakesink maintain {TABLE}" not in run("status", TABLE).stdout


def test_the_function_does_what_the_command_does(catalog: Catalog) -> None:
    before = rows(catalog)
    report = lakesink.maintain_table(TABLE, where="region = 'west'")
    assert report is not None
    assert [(one.partition, one.files, one.into) for one in report.groups] == [("region=west", HOURS, 1)]
    assert (rows(catalog), files(catalog)) == (before, HOURS + 1)
    with catalog.load_table(TABLE).transaction() as change:
        change.set_properties({"self-optimizing.enabled": "true"})
    assert lakesink.maintain_table(TABLE) is None
    assert files(catalog) == HOURS + 1
