"""A stream from Kafka has every committed record once, whoever dies and whatever becomes of transactions."""

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from lakesink_tools.checks.doctor.finding import Standing
from lakesink_tools.checks.doctor.query import check_query
from proof.oracle import batches_contiguous, facts_of, rows_once
from servers.kafka import KafkaBroker
from testkit.harness import PATIENCE_SECONDS, wait_for
from tests.interop.kafka_streams import KafkaStream, Transactions, between, content_of

pytestmark = pytest.mark.interop
KILLED = -9
SOURCE = {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "60"}


def test_every_committed_record_is_there_once_whoever_died(broker: KafkaBroker, tmp_path: Path) -> None:
    broker.create_topic("crashes", 2)
    sent = Transactions(broker.bootstrap, "crashes")
    stream = KafkaStream(tmp_path, bootstrap=broker.bootstrap, topic="crashes", source=SOURCE)

    sent.write(range(100), 2)
    sent.take_back(range(100, 150), 2)
    sent.write(range(150, 200), 2)
    assert stream.run("after-commit@1=kill") == KILLED

    broker.add_partitions(stream.topic, 3)
    sent.write(range(200, 300), 3)
    sent.begin(range(300, 320), 3)
    assert stream.run("after-prepared=kill") == KILLED

    with stream.driver(f"batch-start@3=pause:{tmp_path}/there") as driver:
        wait_for(tmp_path / "there", driver)
        broker.kill()
        (tmp_path / "there").unlink()
        time.sleep(2)
        assert "lakesink.batch.committed table=demo.orders sink=orders batch=3" not in stream.log(), (
            "it needed no broker"
        )
        broker.start()
        assert driver.wait(PATIENCE_SECONDS) == 0

    sent.commit()
    sent.take_back(range(320, 330), 3)
    sent.write(range(330, 350), 3)
    assert stream.run() == 0
    assert_all_arrived(stream, sent)
    assert [landed.outcome for landed in stream.batches().values()].count("recovered") == 1
    assert stream.log().count("lakesink.batch.already-committed") == 1


def test_avro_records_come_as_they_were_written(broker: KafkaBroker, tmp_path: Path) -> None:
    broker.create_topic("typed", 2)
    sent = Transactions(broker.bootstrap, "typed", "avro")
    sent.write(range(60), 2)
    sent.take_back(range(60, 90), 2)
    sent.write(range(90, 100), 2)
    stream = KafkaStream(tmp_path, bootstrap=broker.bootstrap, topic="typed", form="avro")
    assert stream.run() == 0
    assert_all_arrived(stream, sent)
    assert "read-uncommitted" not in stream.log()
    standings = {finding.check: finding.standing for finding in check_query(str(stream.checkpoint))}
    assert (standings["guarantee"], standings["isolation"]) == (Standing.OK, Standing.OK)


def test_without_read_committed_aborted_records_are_rows_and_a_warning_says_so(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.create_topic("loose", 1)
    sent = Transactions(broker.bootstrap, "loose")
    sent.write(range(10), 1)
    sent.take_back(range(10, 20), 1)
    stream = KafkaStream(tmp_path, bootstrap=broker.bootstrap, topic="loose", source={"failOnDataLoss": "false"})
    assert stream.run() == 0
    assert Counter(key for key, _ in stream.told()) == Counter({**sent.committed, **sent.aborted}.keys())
    assert stream.log().count("lakesink.source.read-uncommitted") == 1
    found = {finding.check: finding for finding in check_query(str(stream.checkpoint))}
    assert (found["guarantee"].standing, found["isolation"].standing) == (Standing.WARNING, Standing.WARNING)
    assert "it may skip what it lost (failOnDataLoss=false) (kafka)" in found["guarantee"].found


def assert_all_arrived(stream: KafkaStream, sent: Transactions) -> None:
    """Every record once, as it was written, in the batch that Spark's offsets and those of its snapshot say."""
    told = stream.told()
    assert rows_once(Counter(key for key, _ in told), Counter(sent.committed.keys())) == []
    assert dict(told) == {key: content_of(number) for key, number in sent.committed.items()}
    assert batches_contiguous(facts_of(stream.load(), stream.sink_id)) == []
    start: Mapping[int, int] = {}
    for batch_id, landed in sorted(stream.batches().items()):
        assert landed.ends == stream.logged_offsets(batch_id)
        assert landed.rows == between(sent.committed, start, landed.ends)
        start = landed.ends
