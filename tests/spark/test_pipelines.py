"""Real pipelines of Spark Declarative Pipelines into one table, with lakesink installed and nothing else to set up."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.harness import expected, own_snapshots
from testkit.pipeline import Pipeline
from tests.spark.streams import forget_commits

TWO = {"eu": "eu", "us": "us"}


def outcomes(pipeline: Pipeline, sink_id: str) -> list[tuple[int, str]]:
    return [(batch, outcome) for batch, outcome, _ in own_snapshots(pipeline.load(), sink_id)]


@pytest.mark.nightly
def test_two_sinks_of_a_pipeline_write_one_table_and_a_replay_adds_nothing(tmp_path: Path, site: Path) -> None:
    pipeline = Pipeline(tmp_path, site, sinks=TWO, flows=TWO)
    pipeline.add_files("eu", 0, 2)
    pipeline.add_files("us", 10, 12)
    assert pipeline.run() == 0, pipeline.log()
    assert pipeline.rows() == expected([0, 1, 10, 11])

    for flow in TWO:
        forget_commits(pipeline.checkpoint(flow), 0)
    pipeline.add_files("us", 12, 13)
    assert pipeline.run() == 0, pipeline.log()
    assert pipeline.rows() == expected([0, 1, 10, 11, 12])
    assert pipeline.log().count("lakesink.batch.already-committed") == len(TWO)
    assert outcomes(pipeline, "eu") == [(0, "committed"), (1, "committed")]
    assert outcomes(pipeline, "us") == [(0, "committed"), (1, "committed"), (2, "committed")]


@pytest.mark.driver
def test_a_full_refresh_ends_with_one_line_that_says_so_and_can_be_undone(tmp_path: Path, site: Path) -> None:
    pipeline = Pipeline(tmp_path, site)
    pipeline.add_files("all_numbers", 0, 1)
    assert pipeline.run() == 0, pipeline.log()

    assert pipeline.run("--full-refresh-all") != 0
    told = "[LAKESINK_NEW_CHECKPOINT] The full refresh of flow all_numbers would add rows a second time:"
    assert any(line.startswith("lakesink.batch.refused") and told in line for line in pipeline.log().splitlines())
    assert pipeline.rows() == expected([0])

    shutil.rmtree(pipeline.checkpoint("all_numbers", 1))
    pipeline.add_files("all_numbers", 1, 2)
    assert pipeline.run() == 0, pipeline.log()
    assert pipeline.rows() == expected([0, 1])


@pytest.mark.nightly
def test_two_flows_into_one_sink_write_one_of_them_and_say_what_to_do(tmp_path: Path, site: Path) -> None:
    pipeline = Pipeline(tmp_path, site, sinks={"numbers": "numbers"}, flows=dict.fromkeys(TWO, "numbers"))
    pipeline.add_files("eu", 0, 2)
    pipeline.add_files("us", 10, 12)
    assert pipeline.run() != 0
    assert "give each flow a sink (dp.create_sink) with a sink-id of its own" in pipeline.log()
    [first] = {flow for flow, number in (("eu", 0), ("us", 10)) if (number, 0) in pipeline.rows()}
    assert max(pipeline.rows().values()) == 1

    [second] = TWO.keys() - {first}
    mended = replace(pipeline, sinks={"numbers": "numbers", second: second}, flows={first: "numbers", second: second})
    assert mended.run() == 0, mended.log()
    assert mended.rows() == expected([0, 1, 10, 11])


@pytest.mark.driver
@pytest.mark.nightly
def test_a_catalog_with_a_relative_path_is_refused(tmp_path: Path, site: Path) -> None:
    pipeline = Pipeline(tmp_path, site, environment={"LAKESINK_HOME": "", "PYICEBERG_HOME": str(tmp_path)})
    pipeline.add_files("all_numbers", 0, 1)
    assert pipeline.run() != 0
    assert "[LAKESINK_CATALOG_TEMPORARY]" in pipeline.log()
    assert not list(tmp_path.rglob("*.parquet"))
