"""The Kafka sink keeps every promise that lakesink asks of others, on a real broker."""

from functools import cache
from pathlib import Path

import pytest

from lakesink.sinks.kafka.kafka_sink import KafkaSink
from lakesink.testing import SinkConformance
from servers.kafka import KafkaBroker
from tests.interop.kafka_out.suite_sink import KafkaPlace, Reader, rows_of
from tests.testing.shipped import FAILPOINTS

pytestmark = [pytest.mark.interop, pytest.mark.nightly, pytest.mark.filterwarnings("ignore:.*set most_steps")]

MOST_STEPS = 8
"""Each step is the whole commit of two drivers, with several round trips to a broker."""


@cache
def reader(bootstrap: str) -> Reader:
    return Reader(bootstrap)


class TestKafkaSink(SinkConformance):
    stepped_packages = ("lakesink",)
    most_steps = MOST_STEPS
    failpoints = FAILPOINTS

    @pytest.fixture
    def target(self, broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest) -> KafkaPlace:
        name = f"suite-{abs(hash(request.node.nodeid))}"
        broker.create_topic(name, 1)
        return KafkaPlace(broker.bootstrap, name, tmp_path)

    def open_sink(self, target: KafkaPlace) -> KafkaSink:
        return target.sink()

    def read_rows(self, target: KafkaPlace) -> list[tuple[int, int]]:
        return rows_of(reader(target.bootstrap).records(target.name))
