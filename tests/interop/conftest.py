"""Servers that the tests beside other engines share: each is started once a run, and stopped by its pid."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.kafka import KafkaBroker, kafka_broker

HERE = Path(__file__).parent
LONGEST = ("maintenance", "readers", "cluster")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A room runs in one process, for its tests share servers; the longest rooms first, since two run at a time."""
    for item in filter(is_ours, items):
        item.add_marker(pytest.mark.xdist_group(room(item)))
    items.sort(key=lambda item: rank(room(item)) if is_ours(item) else 0)


def is_ours(item: pytest.Item) -> bool:
    return HERE in item.path.parents


def room(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0]


def rank(name: str) -> int:
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running
