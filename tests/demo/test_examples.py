"""Every example runs as it is in an empty folder, and a second run shows what exactly once means for it."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from testkit.installed import OWN_PORT

EXAMPLES = Path(__file__).parents[2] / "examples"
LAST_LINES = {
    "files_to_table.py": ("1 files, 1 batches, 100 orders", "2 files, 2 batches, 200 orders"),
    "nightly_load.py": ("2000 sales", "2000 sales"),
    "own_foreach_batch.py": ("bank.sums_by_batch: 1 batches, 10 rows", "bank.sums_by_batch: 2 batches, 20 rows"),
}
NEXT_RUN = "-- the second run --"
TWICE = f"""
import runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
print({NEXT_RUN!r}, flush=True)
runpy.run_path(sys.argv[1], run_name="__main__")
"""

CUSTOM_SINK = EXAMPLES / "custom_sink"
NOTEBOOK = EXAMPLES / "notebook"  # test_notebook.py runs it
KAFKA_WINDOWS = EXAMPLES / "kafka_windows"
GUARANTEES = EXAMPLES / "guarantees"  # tests/proof/contest runs these
PIPELINE = EXAMPLES / "pipeline"
SHOWN_OF_PIPELINE = (
    "shop.orders in lakehouse: 4 of 4 retained batches",
    "shop.orders in lakehouse: clean: 4 batches, each there once, whole and readable",
    "note: web into main: Every batch that Spark completed is in the table, up to 1; 2 batches compared by offsets.",
)
DRILL = EXAMPLES.parent / "docs/reference/failpoints.md"
DEPLOY = EXAMPLES / "deploy"  # tests/deploy runs and checks these
PLAYGROUND = EXAMPLES / "playground"  # tests/interop runs it
MEDALLION = EXAMPLES / "medallion"
TRANSACTIONAL_SINKS = EXAMPLES / "transactional_sinks"
RUN_ELSEWHERE = (DEPLOY, GUARANTEES, MEDALLION, NOTEBOOK, PLAYGROUND, TRANSACTIONAL_SINKS)
EVOLUTION = EXAMPLES / "evolution"
DEAD_LETTERS = EXAMPLES / "dead_letters"
CDC = EXAMPLES / "cdc"
SHOWN_OF_STORIES = {
    EVOLUTION: (
        "   It ended with -9. What readers see:",
        "   batch 0: 2 rows; id long, pieces int, _rescued string",
        "   9 documents arrived, 9 rows are in the table, 9 rows equal their documents.",
        "shop.orders in lakehouse: clean: 4 batches, each there once, whole and readable",
    ),
    CDC: (
        "   It ended with -9. What readers see:",
        "   batch 2: 344 rows written; 132 inserted, 212 updated, 129 deleted, 82 superseded",
        "   The database has 1025 orders, and the table 1025. Not equal: [33].",
        "   The database has 1025 orders, and the table 1025. Not equal: none.",
        "   points is long, channel is string.",
        "shop.orders in lakehouse: clean: 5 batches, each there once, whole and readable",
    ),
    DEAD_LETTERS: (
        "   In the table: 96 rows. In the table of dead letters: 8.",
        "   In the table: 288 rows. In the table of dead letters: 12.",
        "   12 letters replayed, 0 pending.",
        "   0 letters replayed, 0 pending.",
        "   300 documents arrived. Lost: 0. Doubled: 0.",
        "shop.orders in lakehouse: clean: 4 batches, each there once, whole and readable",
    ),
}


def shown(example: Path | str) -> Any:
    """A parameter of a test that runs if this example changed."""
    path = EXAMPLES / example
    return pytest.param(example, id=path.name, marks=pytest.mark.page(str(path.relative_to(EXAMPLES.parent))))


def run(command: list[str], folder: Path, **variables: str) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LAKESINK_", "PYICEBERG_"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PYICEBERG_HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.page("examples/files_to_table.py")
def test_an_example_runs_and_runs_again(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "files_to_table.py")]
    assert tuple(run(command, tmp_path)[-1] for _ in range(2)) == LAST_LINES["files_to_table.py"]


@pytest.mark.parametrize("example", [shown(name) for name in sorted(LAST_LINES.keys() - {"files_to_table.py"})])
def test_an_example_runs_twice_in_one_process(tmp_path: Path, example: str) -> None:
    """A second process would start Spark anew, and the example above does."""
    lines = run([sys.executable, "-c", TWICE, str(EXAMPLES / example)], tmp_path)
    assert (lines[lines.index(NEXT_RUN) - 1], lines[-1]) == LAST_LINES[example]


@pytest.mark.nightly
@pytest.mark.parametrize("example", sorted(LAST_LINES.keys() - {"files_to_table.py"}))
def test_each_example_runs_and_runs_again(tmp_path: Path, example: str) -> None:
    command = [sys.executable, str(EXAMPLES / example)]
    assert tuple(run(command, tmp_path)[-1] for _ in range(2)) == LAST_LINES[example]


@pytest.mark.page("examples/custom_sink")
def test_the_custom_sink_is_killed_and_replayed_and_every_order_is_there_once(tmp_path: Path) -> None:
    told = run([sys.executable, str(CUSTOM_SINK / "run.py")], tmp_path)
    shown = "\n".join(told)
    assert "lakesink.failpoint.reached name=after-prepared batch=1 action=kill" in shown
    assert "It ended with -9.\n   In the table: 100 rows, 100 orders, 1 batches." in shown
    assert "lakesink.batch.recovered table=orders sink=orders batch=1" in shown
    assert "In the table: 300 rows, 300 orders, 3 batches.\n3. Every order once: True." in shown
    assert told[-2].startswith("Next: ")


@pytest.mark.parametrize("example", [shown(folder) for folder in SHOWN_OF_STORIES])
def test_a_story_of_a_killed_driver_ends_as_its_readme_says(tmp_path: Path, example: Path) -> None:
    told = run([sys.executable, str(example / "run.py")], tmp_path)
    page = (example / "README.md").read_text().splitlines()
    for line in SHOWN_OF_STORIES[example]:
        assert line in told
        assert line in page


@pytest.mark.parametrize(
    "example", [pytest.param(CUSTOM_SINK, id=CUSTOM_SINK.name, marks=pytest.mark.nightly), shown(GUARANTEES)]
)
def test_the_sinks_of_the_examples_pass_the_suite(tmp_path: Path, example: Path) -> None:
    options = ["-p", "no:cacheprovider", "--basetemp", str(tmp_path / "pytest")]
    run([sys.executable, "-m", "pytest", str(example), *options], tmp_path)


@pytest.mark.page("examples/kafka_windows")
def test_windows_over_files_equal_a_batch_computation_though_the_driver_was_killed(tmp_path: Path) -> None:
    story = [sys.executable, "-m", "examples.kafka_windows", "--files", "--days", "4", "--driver-kills", "1"]
    told = json.loads(
        "\n".join(run([*story, "--seed", "1", "--output", "json"], tmp_path, PYTHONPATH=str(EXAMPLES.parent)))
    )
    assert told["proved"] is True
    assert (told["seed"], told["killed"], told["drivers"]) == (1, ["driver"], 2)
    assert (told["committed"], told["aborted"]) == (3586 + 3, 1000)
    assert len(told["checks"]) == 10
    assert all(check["expected"] == check["found"] for check in told["checks"])


@pytest.mark.page("examples/pipeline")
def test_the_pipeline_runs_as_its_readme_says(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (PIPELINE / "README.md").read_text()
    project = Path(shutil.copytree(PIPELINE, tmp_path / "pipeline"))
    path = f"{site / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    steps = "\n".join(part.partition("```")[0] for part in page.split("<!-- run -->\n```sh\n")[1:])
    told = run(["bash", "-e", "-c", steps], project, PATH=path, PYTHONPATH=str(site), **OWN_PORT, **pythons)
    for line in SHOWN_OF_PIPELINE:
        assert line in told
        assert line in page

    monkeypatch.setenv("LAKESINK_HOME", str(project / "lakehouse"))
    table = load_table(connect(create=False), "shop.orders")
    assert Counter(table.scan().to_arrow()["order_id"].to_pylist()) == Counter(range(200, 600))


@pytest.mark.page("docs/reference/failpoints.md", "catalog/lakesink_catalog/failpoints.py")
def test_the_drill_of_the_documents_runs_as_it_is_printed(tmp_path: Path) -> None:
    drill = DRILL.read_text().partition("<!-- drill -->\n```sh\n")[2].partition("```")[0]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = run(["bash", "-c", drill], tmp_path, EXAMPLES=str(EXAMPLES), PATH=path)
    assert any(line.startswith("No batch of lakesink is retained") for line in told)
    assert any(line.startswith("orders") and " recovered " in line for line in told)


def test_every_example_is_run_here_and_named_in_their_readme() -> None:
    found = {path.name for path in EXAMPLES.glob("*.py")}
    folders = {path.parent.name for path in EXAMPLES.glob("*/README.md")}
    named = (EXAMPLES / "README.md").read_text()

    assert (found, folders) == (
        set(LAST_LINES),
        {folder.name for folder in (*RUN_ELSEWHERE, *SHOWN_OF_STORIES, CUSTOM_SINK, KAFKA_WINDOWS, PIPELINE)},
    )
    assert all(f"[{name}]({name})" in named for name in found)
    assert all(f"[{name}]({name}/README.md)" in named for name in folders)
