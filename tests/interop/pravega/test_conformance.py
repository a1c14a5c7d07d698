"""The sink of Pravega keeps every promise that lakesink asks of others, on a real server."""

from pathlib import Path

import pytest

from lakesink.testing import SinkConformance
from servers.pravega import PravegaServer

pytest.importorskip("pravega_client", reason="python -m servers.fetch pravega-client; Python 3.11 on Linux only")

from pravega_sink import PravegaSink

from tests.interop.pravega.place import Place

pytestmark = [pytest.mark.interop, pytest.mark.nightly, pytest.mark.filterwarnings("ignore:.*set most_steps")]

MODULES = ("pravega_sink", "pravega_ledger", "pravega_transaction")


class TestPravegaSink(SinkConformance):
    stepped_packages = MODULES
    most_steps = 16
    failpoints = ("example.pravega-durable", "example.pravega-elected", "example.pravega-committed")

    @pytest.fixture
    def target(self, server: PravegaServer, tmp_path: Path) -> Place:
        return Place.make(server.controller, tmp_path)

    def open_sink(self, target: Place) -> PravegaSink:
        return target.sink()

    def read_rows(self, target: Place) -> list[tuple[int, int]]:
        return target.rows()
