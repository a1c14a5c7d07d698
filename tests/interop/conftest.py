"""Servers that the tests beside other engines share: each is started once a run, and stopped by its pid."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from servers.kafka import KafkaBroker, kafka_broker
from servers.s3 import S3, s3

HERE = Path(__file__).parent
LONGEST = ("maintenance", "readers", "cluster")


class RoomByRoom(LoadScopeScheduling):  # type: ignore[misc] # xdist ships no types
    """A room runs in one process, for its tests share servers."""

    def _split_scope(self, nodeid: str) -> str:
        return room(Path(nodeid.partition("::")[0]))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RoomByRoom:
    return RoomByRoom(config, log)


@pytest.hookimpl(trylast=True)  # after the order of all tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest rooms first, since two run at a time."""
    items.sort(key=lambda item: rank(room(item.path)))


def room(test: Path) -> str:
    """Folder or file below this one."""
    parts = test.parts
    return parts[parts.index(HERE.name) + 1] if HERE.name in parts else ""


def rank(name: str) -> int:
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An S3 of the test's own, which this process knows by its environment."""
    with s3(tmp_path / "s3", "lake") as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running
