"""What most tests of histories look at."""

import pytest

from testkit.builders import Lake, Stream
from tests.audit.terminal import Run, terminal


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the lake's table."""
    return terminal(lake, monkeypatch)


@pytest.fixture
def stream(lake: Lake) -> Stream:
    """Four batches of three rows."""
    return Stream(lake).filled(4)
