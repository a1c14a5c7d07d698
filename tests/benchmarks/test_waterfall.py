"""The parts of a batch come to the whole of it, and the picture shows each."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import waterfall
from benchmarks.charts import waterfall as chart
from benchmarks.fall import ADD_BATCH, REST, WHOLE, around, fall, within
from benchmarks.page import BENCH
from benchmarks.steps import STEPS
from benchmarks.stopwatch import Kind, Stopwatch, Timed, timing
from benchmarks.waterfall import Load, Stream, medians
from lakesink_catalog.connect.catalog import FoundCatalog
from testkit import builders

SPARK = {
    "walCommit": 20.0, "latestOffset": 1.0, "getBatch": 2.0, "queryPlanning": 7.0, "addBatch": 50.0,
    "commitOffsets": 10.0, "triggerExecution": 93.0,
}  # fmt: skip
LAPS = {"begin: load the table": 4.0, "write: the job": 30.5, "commit: the catalog's row": 9.0}


def load() -> Load:
    ours = Stream("lakesink", [SPARK] * 3, [LAPS] * 3)
    return Load("100 rows", [ours.told(), Stream("noop", [SPARK | {ADD_BATCH: 30.0, WHOLE: 73.0}] * 3).told()])


def test_parts_follow_one_another_and_the_rest_ends_where_the_whole_does() -> None:
    parts = fall({"a": 4.0, "b": 30.5}, whole=50.0, start=30.0)
    assert [(part.name, part.start, part.milliseconds) for part in parts] == [
        ("a", 30.0, 4.0),
        ("b", 34.0, 30.5),
        (REST, 64.5, 15.5),
    ]


def test_parts_that_come_to_more_than_the_whole_leave_a_rest_below_nothing() -> None:
    assert fall({"a": 40.0}, whole=30.0)[-1].milliseconds == -10.0


def test_steps_of_a_sink_lie_within_what_spark_says_of_it() -> None:
    steps, [whole] = within(SPARK, LAPS), [part for part in around(SPARK) if part.name == ADD_BATCH]
    assert sum(step.milliseconds for step in steps) == whole.milliseconds
    assert steps[0].start == whole.start == 30.0
    assert steps[-1].start + steps[-1].milliseconds == whole.start + whole.milliseconds


def test_the_table_and_the_picture_have_every_part() -> None:
    found = load()
    rows = {row[1]: row[2:] for row in waterfall.report([found]).rows if row[1] != REST}
    labels = re.findall(r">([^<>]+)</text>", chart([asdict(found)]))
    assert rows[ADD_BATCH] == ("50.0", "30.0")
    for name in (*SPARK.keys() - {WHOLE, ADD_BATCH}, *LAPS):
        assert name in rows or f"- {name}" in rows, name
        assert {name, f"Spark: {name}"} & set(labels), name
    assert {"lakesink: addBatch", "noop: addBatch"} <= set(labels)
    assert {REST, f"Spark: {REST}"} <= set(labels)


def test_the_page_shows_the_picture() -> None:
    result = waterfall.report([load()]).to_json() | {"commit": "abc", "rounds": 5}
    document = {"machine": "2 processors", "results": [result]}
    assert "/waterfall.svg)" in BENCH.as_markdown(document)
    assert BENCH.pictures(document)["waterfall.svg"] == chart(result["raw"])


def test_a_step_that_few_batches_have_took_the_others_no_time() -> None:
    assert medians([{"a": 1.0}, {"a": 3.0, "b": 9.0}, {"a": 2.0}]) == {"a": 2.0, "b": 0.0}


def test_a_lap_has_only_what_no_lap_within_it_has() -> None:
    times = iter([0, 1, 2, 3, 5, 7, 11, 13])
    stopwatch = Stopwatch(lambda: next(times) / 1000)

    def timed(kind: Kind, name: str, call: Callable[[], None]) -> Callable[[], None]:
        return stopwatch.around(Timed(kind, name, None, ""), call)

    step = timed(Kind.STEP, "step", lambda: None)
    plain = timed(Kind.PHASE, "plain", lambda: None)
    phase = timed(Kind.PHASE, "phase", step)

    def batch() -> None:
        phase()
        plain()

    timed(Kind.BATCH, "batch", batch)()
    step()
    assert [{name: round(lap, 3) for name, lap in one.items()} for one in stopwatch.batches] == [
        {"phase: step": 1.0, "phase: other": 3.0, "plain": 4.0, "batch: other": 5.0}
    ]


def test_every_step_of_a_commit_is_timed(tmp_path: Path) -> None:
    lake = builders.Lake.make(tmp_path)
    stream, stopwatch = builders.Stream(lake), Stopwatch()
    opened = FoundCatalog("test", {"type": "sql", **lake.catalog.properties}).open
    sink = replace(stream.sink(), open_catalog=opened)
    of_spark = {"rows to the driver", "Arrow from the query's plan", "the job"}
    with timing(stopwatch, [*STEPS, Timed(Kind.BATCH, "driver", builders.Stream, "run_with")]):
        stream.run_with(sink, 0)
        stream.run_with(sink, 1)
    assert len(stopwatch.batches) == 2
    for batch in stopwatch.batches:
        steps = {name.partition(": ")[2] for name in batch}
        assert steps >= {one.name for one in STEPS if one.kind is Kind.STEP} - of_spark


def test_what_was_timed_is_afterwards_as_it_was() -> None:
    before = [getattr(timed.owner, timed.attribute) for timed in STEPS]
    with timing(Stopwatch(), STEPS):
        pass
    assert [getattr(timed.owner, timed.attribute) for timed in STEPS] == before
