"""Servers that the tests beside other engines share: each is started once a run, and stopped by its pid."""

from collections.abc import Iterator

import pytest

from servers.kafka import KafkaBroker, kafka_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running
