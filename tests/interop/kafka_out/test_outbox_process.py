"""The command `lakesink outbox` as a service: it runs beside the stream of the table, and is killed at will."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from servers.kafka import KafkaBroker
from testkit.builders import TABLE, Lake, Stream
from testkit.harness import PATIENCE_SECONDS, kill_all, own_group
from tests.interop.kafka_out.suite_sink import Reader
from tests.interop.kafka_out.test_outbox import fresh_topic

pytestmark = pytest.mark.interop
KILLS, ROWS = 6, 400


@dataclass(frozen=True, slots=True)
class Service:
    """The command, for one table and one topic."""

    broker: KafkaBroker
    lake: Lake
    topic: str

    @contextmanager
    def running(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        catalog = {"TYPE": "sql", "URI": f"sqlite:///{self.lake.folder}/catalog.db"}
        environment = {**os.environ, **{f"PYICEBERG_CATALOG__TEST__{name}": value for name, value in catalog.items()}}
        command = [
            str(Path(sys.executable).with_name("lakesink")),
            "outbox",
            TABLE,
            "--catalog",
            "test",
            "--topic",
            self.topic,
        ]
        command += ["--bootstrap-servers", self.broker.bootstrap, "--every", "0.1", *options]
        with own_group(command, self.log, environment) as process:
            yield process

    @property
    def log(self) -> Path:
        return self.lake.folder / "outbox.log"

    def wait_for(self, process: "subprocess.Popen[str]", text: str) -> None:
        """Wait until the service has printed this."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.log.read_text():
            assert process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def batches(self) -> list[int]:
        """The batch of each record, in the order of the topic."""
        return [json.loads(value or b"")["batch"] for _, value in Reader(self.broker.bootstrap).records(self.topic)]


@pytest.fixture
def service(broker: KafkaBroker, tmp_path: Path) -> Service:
    return Service(broker, Lake.make(tmp_path), fresh_topic(broker))


def test_a_service_that_is_killed_at_any_time_produces_each_row_once_and_in_order(service: Service) -> None:
    chance, stream, written = random.Random(20), Stream(service.lake), 0
    for _ in range(KILLS):
        for _ in range(3):
            stream.run(written, rows=ROWS)
            written += 1
        with service.running() as process:
            service.wait_for(process, f"batch {written - 3}: ")  # it has begun
            time.sleep(chance.uniform(0, 0.3))
            kill_all(process)
    with service.running("--once") as process:
        assert process.wait(PATIENCE_SECONDS) == 0
    assert service.batches() == [batch for batch in range(written) for _ in range(ROWS)]


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_service_that_is_asked_to_end_says_what_it_did_and_what_is_next(
    service: Service, asked: signal.Signals
) -> None:
    stream = Stream(service.lake)
    stream.run(0)
    with service.running() as process:
        service.wait_for(process, "batch 0: 3 rows")
        stream.run(1)
        service.wait_for(process, "batch 1: 3 rows")
        process.send_signal(asked)
        assert process.wait(PATIENCE_SECONDS) == 0
    shown = service.log.read_text()
    assert f"{TABLE} into topic {service.topic}: 2 batches of sink events" in shown
    assert "Traceback" not in shown
    assert service.batches() == [0] * 3 + [1] * 3


def test_a_broker_that_is_away_for_a_while_is_waited_for(broker: KafkaBroker, service: Service) -> None:
    stream = Stream(service.lake)
    stream.run(0)
    with service.running() as process:
        service.wait_for(process, "batch 0: 3 rows")
        broker.kill()
        stream.run(1)
        time.sleep(3)
        broker.start()
        service.wait_for(process, "batch 1: 3 rows")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert service.batches() == [0] * 3 + [1] * 3


@pytest.mark.nightly
def test_a_broker_that_is_away_for_long_is_waited_for_and_each_attempt_is_a_line(
    broker: KafkaBroker, service: Service, tmp_path: Path
) -> None:
    impatient = tmp_path / "client.properties"
    impatient.write_text("socket.timeout.ms=1000\n")
    stream = Stream(service.lake)
    stream.run(0)
    with service.running("--config", str(impatient)) as process:
        service.wait_for(process, "batch 0: 3 rows")
        broker.kill()
        try:
            stream.run(1)
            service.wait_for(process, "Trying again in 2 s")
        finally:
            broker.start()
        service.wait_for(process, "batch 1: 3 rows")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert service.batches() == [0] * 3 + [1] * 3


def test_a_catalog_that_is_not_there_yet_is_waited_for(service: Service) -> None:
    Stream(service.lake).run(0)
    catalog = service.lake.folder / "catalog.db"
    elsewhere = catalog.rename(catalog.with_suffix(".away"))
    catalog.mkdir()
    with service.running() as process:
        service.wait_for(process, "Trying again in 1 s")
        catalog.rmdir()
        elsewhere.rename(catalog)
        service.wait_for(process, "batch 0: 3 rows")
    assert service.batches() == [0] * 3


def test_without_patience_an_error_ends_the_command(service: Service, broker: KafkaBroker, tmp_path: Path) -> None:
    impatient = tmp_path / "client.properties"
    impatient.write_text("socket.timeout.ms=1000\n")
    Stream(service.lake).run(0)
    broker.kill()
    try:
        with service.running("--once", "--config", str(impatient)) as process:
            assert process.wait(PATIENCE_SECONDS) == 2
    finally:
        broker.start()
    shown = service.log.read_text()
    assert "[LAKESINK_KAFKA_UNREACHABLE]" in shown
    assert "Data: The table is unchanged. The topic has the batches up to" in shown


def test_batches_behind_rows_that_another_writer_replaced_are_reported_and_not_well(service: Service) -> None:
    stream = Stream(service.lake)
    stream.run(0)
    table = service.lake.table()
    table.overwrite(table.scan().to_arrow())
    stream.run(1)
    with service.running("--once") as process:
        assert process.wait(PATIENCE_SECONDS) == 1
    assert "Not produced: what is behind snapshot" in service.log.read_text()
    with service.running("--once") as process:
        assert process.wait(PATIENCE_SECONDS) == 2
    shown = service.log.read_text()
    assert "[LAKESINK_READ_ROWS_REMOVED]" in shown
    assert "a new --id and --starting-batch" in shown


def test_an_interrupted_command_says_how_many_batches_are_left(service: Service) -> None:
    stream = Stream(service.lake)
    for number in range(8):
        stream.run(number, rows=20_000)
    with service.running("--once") as process:
        service.wait_for(process, "batch 0: ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 1
    produced = service.log.read_text().count(": 20,000 rows")
    assert f"Interrupted: {8 - produced} batch" in service.log.read_text()
