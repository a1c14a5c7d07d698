"""Spark SQL and Trino maintain a table, all the while a real stream writes into it and is killed twice."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from proof.model.checker import check
from testkit.harness import Stream, expected
from testkit.tracing import VARIABLE as TRACE
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.others import UNFINISHED, Inserts, Others, by_spark, by_trino
from tests.interop.maintenance.running import Feed, at_work, came_late, done_batches, steps, tried_again
from tests.interop.readers.engines import CATALOG

SECONDS = float(os.environ.get("LAKESINK_MAINTENANCE_SECONDS", "300"))
PATIENCE_SECONDS = 3 * SECONDS + 120
BATCHES, OF_EACH_KIND = int(200 * SECONDS / 300), int(20 * SECONDS / 300)
KILLED_AT = BATCHES // 3
CONFLICTS = (
    "CommitFailedException",
    "ValidationException",
    "Failed to commit",
    "NotFoundException",  # another one expired the snapshot that it was looking at
)
"""What an engine says of an operation that another one made impossible."""

pytestmark = [pytest.mark.interop, pytest.mark.nightly, pytest.mark.timeout(PATIENCE_SECONDS + 300)]


def test_every_row_is_there_once_while_others_maintain_the_table(lake: Lake, request: pytest.FixtureRequest) -> None:
    """The driver dies with a batch prepared, and again wherever it is; what others insert is there once too."""
    table, trace = "demo.numbers", lake.root / "trace"
    stream = replace(
        lake.stream("numbers", prepared_max_age=f"{UNFINISHED.seconds // 2} s"),
        trigger={"processingTime": "300 milliseconds"},
        environment={TRACE: str(trace)},
    )
    inserts = Inserts(lake, table, lake.spark.sql, -1), Inserts(lake, table, lake.trino.sql, -2)
    others = by_spark(lake, table, inserts[0]), by_trino(lake, table, inserts[1])
    feed = Feed(stream)
    started = time.monotonic()

    def is_enough() -> bool:
        assert driver.poll() is None, stream.log()[-5000:]
        rare = min(min(one.done[kind] for kind in one.operations) for one in others)
        is_long = time.monotonic() - started >= SECONDS and done_batches(stream) >= BATCHES
        return is_long and rare >= OF_EACH_KIND and came_late(steps(trace)) > 0

    with at_work(others) as work:
        with stream.driver(f"after-prepared@{KILLED_AT}=kill") as driver:
            feed.until(lambda: driver.poll() is not None, PATIENCE_SECONDS, work)
        assert driver.returncode == -9, stream.log()[-5000:]
        with stream.driver() as driver:
            feed.until(is_enough, PATIENCE_SECONDS, work)
    seconds = time.monotonic() - started
    assert replace(stream, trigger={"availableNow": True}).run() == 0, stream.log()[-5000:]

    print(f"\n{seconds:.0f} s, {done_batches(stream)} batches, killed at {KILLED_AT}")
    assert_conflicts(lake, others, steps(trace))
    assert check(trace.read_text().splitlines()) == []
    lake.call("fast_forward", table, branch="'published'", to="'main'")
    wanted = expected(range(feed.files)) + inserts[0].expected() + inserts[1].expected()
    assert lake.rows(table, request.getfixturevalue("of_flink")) == wanted
    assert len(lake.spark.sql(f"SELECT * FROM {CATALOG}.{table} VERSION AS OF 'published'")) == wanted.total()
    assert_intact(lake, stream)


def assert_conflicts(lake: Lake, others: Sequence[Others], ours: "Counter[str]") -> None:
    """Commits of either side came too late and were tried again; what engines gave up is of the known kinds."""
    late = {name: tried_again(lake.root / name / f"{name}.log") for name in ("spark", "trino")}
    print(f"lakesink: {dict(ours)}; tried again by themselves: {late}")
    for one in others:
        print(f"done {dict(one.done)}; given up {dict(Counter(kind for kind, _ in one.refused))}")
    given_up = [error for one in others for _, error in one.refused]
    assert not [error for error in given_up if not any(word in error for word in CONFLICTS)]
    assert came_late(ours) > 0
    assert sum(late.values()) + len(given_up) > 0


def assert_intact(lake: Lake, stream: Stream) -> None:
    """By lakesink's own commands."""
    checkpoint = ("--checkpoint", str(stream.checkpoint))
    audit = lake.asked("audit", stream.table, *checkpoint)
    assert (audit["exit_code"], audit["findings"]) == (0, []), audit
    doctor = lake.asked("doctor", stream.table, *checkpoint, "--no-spark")
    assert doctor["exit_code"] == 0, doctor
    log = lake.asked("log", stream.table)
    assert (log["exit_code"], log["batches"][-1]["batch_id"]) == (0, done_batches(stream) - 1), log
