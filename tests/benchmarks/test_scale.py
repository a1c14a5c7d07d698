"""The page on scale says what the results say, and what it advises is what a table does."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import asked, results
from benchmarks.audit import Cost
from benchmarks.commit_latency import ROWS, commit_once, fenced
from benchmarks.committers import Share
from benchmarks.long_table import Merge
from benchmarks.many_files import DriverPart
from benchmarks.page import DATA, comparable, judged, together
from benchmarks.partitions import SINKS, Batches
from benchmarks.result import Goal, Ratio, Result
from benchmarks.scale import driver, history, merges, sources, speed, wide, writers
from benchmarks.scale.first import FIRST
from benchmarks.scale.page import SCALE, SHORT_RUN
from benchmarks.scale.panel import Line
from benchmarks.scale.paper import FEW_VERSIONS, KEPT, TEN_YEARS, many_partitions, papers, ten_years
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table

MIB = 1024**2


def histories() -> Result:
    """A metadata file of 1 MiB a thousand snapshots, a commit of 10 ms and another one for each of them."""
    return history.report(
        [
            history.History(
                length,
                length * MIB // 1000,
                {command: [Cost(1 + length / 1e5, 1.0, 100)] for command in (*history.LOOKS, history.AUDIT)},
                history.Committed([10 + length / 1000] * 3, 200 * MIB),
            )
            for length in history.LENGTHS
        ]
    )


def drivers() -> Result:
    """10 us and 100 bytes a file."""
    sizes = [(columns, files) for columns in driver.COLUMNS for files in driver.FILES]
    return driver.report({(c, files): DriverPart(files * 5e-6, files * 5e-6, files * 100) for c, files in sizes})


def wide_batches() -> Result:
    """1 ms a partition, and the memory of a worker constant."""
    return wide.report(
        [
            wide.Batch(mode, partitions, partitions, 2 + partitions / 1000, 0.1, 200 * MIB)
            for mode, sizes in wide.PARTITIONS.items()
            for partitions in sizes
        ]
    )


def every_part() -> list[Result]:
    """All parts with whole sizes and made-up figures."""
    crowds = [
        writers.Crowd(kind, [Share([10.0] * 5, 0, 0, 0.0, 1.0, 0.1)] * processes)
        for kind in writers.KINDS.values()
        for processes in writers.PROCESSES
    ]
    grown = [
        merges.Grown(1000, files, 20, Merge(0.1, 0.1, 100), [10.0] * 9, [20.0] * 9) for files in merges.FILES_A_BATCH
    ]
    streams = {(size, sink.name): Batches([100], [1]) for size in (2, 32, 200, 1000) for sink in SINKS}
    rows = {"W1": 4_000_000, "W2": 2_000_000}
    compared = [
        Result(key, "", ("sink",), (), (speed.goal_of(key, rows[key], Ratio(1.3, 1.2, 1.4)),), []) for key in rows
    ]
    of_sink = [sources.report(streams), wide_batches(), *compared]
    return [drivers(), merges.report(grown), writers.report(crowds), histories(), *of_sink]


def run(*found: Result, short: bool = False) -> dict[str, Any]:
    return {"machine": "one", "rounds": 1, "results": [one.to_json() | {"short": short} for one in found]}


def page_of(*runs: dict[str, Any]) -> str:
    document: dict[str, Any] = {"results": []}
    for one in runs:
        document = together(comparable(document, one), one, "abc")
    return SCALE.as_markdown(json.loads(json.dumps(document)))


def test_page_and_pictures_are_what_the_data_say() -> None:
    document = SCALE.known
    assert SCALE.as_markdown(document) in SCALE.text
    drawn = SCALE.pictures(document)
    assert {name: (DATA / name).read_text() for name in drawn} == drawn


def test_the_page_has_every_goal_with_what_was_measured_first() -> None:
    found = every_part()
    page = page_of(run(*found))
    goals = {goal.name: goal for one in found for goal in one.goals}
    assert FIRST.keys() <= goals.keys()
    for name, goal in goals.items():
        [(first, said)] = re.findall(rf"^\| {re.escape(name)} \| (.*?) \| .* \| (\S+) \|$", page, re.MULTILINE)
        assert (first, said) == (FIRST.get(name, ""), judged(goal, None)), name


def test_two_runs_stand_beside_each_other() -> None:
    def at(measured: float) -> dict[str, Any]:
        goal = Goal("speed", 2.0, measured, at_least=True)
        return run(Result("W1", "", ("sink",), (), (goal,), []))

    assert "| speed |  | >= 2x | 2.1x | 2.2x | yes |" in page_of(at(2.2), at(2.1))
    assert "| speed |  | >= 2x | 1.9x | 2.2x | once |" in page_of(at(2.2), at(1.9))
    assert "| speed |  | >= 2x | 1.9x | 1.8x | **no** |" in page_of(at(1.8), at(1.9))


def test_a_short_run_says_that_it_is_one_and_meets_no_goal() -> None:
    short = run(drivers(), short=True)
    assert f"**From {SHORT_RUN}" in page_of(short)
    worked_out = "## Ten years"
    assert worked_out not in page_of(run(histories(), short=True))
    assert worked_out in page_of(run(histories()))
    assert re.findall(r"^\| driver's part .* \| (.*?) \|$", page_of(short), re.MULTILINE) == [SHORT_RUN] * 2
    whole = page_of(short, run(drivers()))
    assert whole == page_of(run(drivers()))
    assert SHORT_RUN not in whole


def test_every_part_with_curves_has_its_picture_on_the_page() -> None:
    document = together({"results": []}, run(*every_part()), "abc")
    drawn = SCALE.pictures(document)
    assert len(drawn) == 6
    axes = {name: text.count('<g id="axes_') for name, text in drawn.items()}
    assert axes == {f"scale-{one['key']}.svg": len(one["raw"]) for one in document["results"] if one["raw"]}
    assert all(f"../data/{name})" in SCALE.as_markdown(document) for name in drawn)
    assert all(text in drawn["scale-history.svg"] for text in (">audit --skip-footers<", ">metadata file, MiB<"))


def test_ten_years_lie_on_the_measured_line() -> None:
    paper = ten_years({"history": histories().to_json()})
    rows = {name: cells for name, *cells in paper.rows}
    assert rows["metadata file"][:2] == ["7.2 MiB", f"{TEN_YEARS / 1000 / 1024:.2g} GiB"]
    assert rows["one commit, median"][:2] == [f"{10 + KEPT / 1000:.2g} ms", f"{(10 + TEN_YEARS / 1000) / 1000:.2g} s"]
    assert "40,000 snapshots" in dict(paper.advice)["Spark's `expire_snapshots`, or Trino's, every day"]


def test_many_partitions_lie_on_the_measured_lines() -> None:
    found = {one.key: one.to_json() for one in (drivers(), wide_batches())}
    rows = {name: cells for name, *cells in many_partitions(found).rows}
    assert rows["the query"][:2] == ["102 s", "102 s"]
    assert rows["driver: votes and manifest, 13 columns"][:2] == ["1 s", "2 s"]
    assert rows["receipts, 13 columns"][:2] == ["10 MB", "20 MB"]


def test_nothing_is_worked_out_of_what_was_not_measured() -> None:
    assert list(papers({"driver": drivers().to_json()})) == []


def test_a_line_goes_through_its_points() -> None:
    line = Line.through([(10, 25), (20, 45), (30, 65)])
    assert (line.slope, line.intercept, line.at(100)) == (2, 5, 205)


def test_a_table_keeps_as_many_metadata_files_as_the_page_says(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = connect("bench", properties)
    own = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": str(FEW_VERSIONS),
    }
    create_table(catalog, "bench.few", ROWS.schema, properties=own)
    fence = fenced(catalog, "bench.few")
    for number in range(FEW_VERSIONS + 3):
        commit_once(fence, number)
    assert len(list(tmp_path.rglob("*.metadata.json"))) == FEW_VERSIONS + 1


@pytest.mark.nightly
def test_cheap_parts_run_with_small_sizes(tmp_path: Path) -> None:
    found = [result for _, result in results(tmp_path, asked("scale/driver,scale/files"), lambda _: None, {"short": 1})]
    assert [(one.key, one.failed) for one in found] == [("driver", False), ("files", False)]
    assert [row[1] for row in found[0].rows] == ["1,000", "5,000"] * 2
    assert found[1].rows[1][:2] == ("7,500", "50")
