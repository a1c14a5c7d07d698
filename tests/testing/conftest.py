"""Children of the suite that are killed are forked from one process: imports cost each child of its own two seconds."""

from collections.abc import Iterator

import pytest

from lakesink_tools.testing.checks import processes
from testkit.forks import Forks, one_process


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with one_process(tmp_path_factory.mktemp("forks")) as found:
        yield found


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other children, of which there are few, are started as a user's suite starts them."""
    if "test_a_driver_is_killed_at_every_point" in request.node.name:
        monkeypatch.setattr(processes, "start", request.getfixturevalue("forks").start)
