"""A stream into Kafka has each row once in its topic, and its batches in order, whoever dies."""

import time
from pathlib import Path

import pytest

from servers.kafka import KafkaBroker, kafka_broker
from testkit.harness import PATIENCE_SECONDS, wait_for
from tests.interop.kafka_out.streams import TopicStream

pytestmark = pytest.mark.interop
LONG = pytest.mark.nightly
KILLED = -9
POINTS = (
    "batch-start",
    "while-writing",
    "before-prepared",
    "after-prepared",
    "before-call",
    "after-call",
    "after-commit",
)


def stream_into(broker: KafkaBroker, root: Path, topic: str) -> TopicStream:
    broker.create_topic(topic, 3)
    return TopicStream(root, table=topic, sink_id=topic, bootstrap=broker.bootstrap)


def test_a_driver_that_is_killed_at_every_point_loses_and_doubles_no_row(broker: KafkaBroker, tmp_path: Path) -> None:
    stream = stream_into(broker, tmp_path, "killed")
    stream.add_files(0, len(POINTS) + 1)
    for batch, point in enumerate(POINTS):
        died = stream.run(f"{point}@{batch}=kill")
        assert died == (1 if point == "while-writing" else KILLED), "that point is in a Python worker of Spark"
    assert stream.run() == 0
    stream.assert_each_row_once(len(POINTS) + 1)
    left = (file.name.partition("-")[0] for file in (tmp_path / "staging" / "killed" / "prepared").iterdir())
    before_tidying = [POINTS.index("after-call") - 1, POINTS.index("after-commit") - 1]
    assert sorted(map(int, left)) == [*before_tidying, len(POINTS)], "the newest, and what a death kept from removal"


@pytest.mark.parametrize("point", [pytest.param("after-prepared", marks=LONG), "before-call"])
def test_a_broker_that_is_killed_in_a_commit_loses_and_doubles_no_row(tmp_path: Path, point: str) -> None:
    (tmp_path / "kafka").mkdir()
    with kafka_broker(tmp_path / "kafka") as broker:
        stream = stream_into(broker, tmp_path, "outage")
        stream.add_files(0, 3)
        with stream.driver(f"{point}@1=pause:{tmp_path}/there") as driver:
            wait_for(tmp_path / "there", driver)
            broker.kill()
            (tmp_path / "there").unlink()
            time.sleep(5)
            broker.start()
            assert driver.wait(PATIENCE_SECONDS) == 0
        stream.assert_each_row_once(3)


@pytest.mark.parametrize(
    "point", [pytest.param("after-prepared", marks=LONG), "before-call", pytest.param("after-call", marks=LONG)]
)
def test_a_zombie_commits_nothing_after_another_driver_went_on(broker: KafkaBroker, tmp_path: Path, point: str) -> None:
    stream = stream_into(broker, tmp_path, f"zombie-{point}")
    stream.add_files(0, 3)
    with stream.driver(f"{point}@1=pause:{tmp_path}/there") as zombie:
        wait_for(tmp_path / "there", zombie)
        assert stream.run() == 0
        stream.assert_each_row_once(3)
        (tmp_path / "there").unlink()
        zombie.wait(PATIENCE_SECONDS)
    stream.assert_each_row_once(3)
    stream.add_files(3, 4)
    assert stream.run() == 0
    stream.assert_each_row_once(4)
