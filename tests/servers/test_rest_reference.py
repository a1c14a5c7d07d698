"""The reference server is a real REST catalog that keeps its data over a kill. Runs where its jars can be had."""

from pathlib import Path

import pyarrow as pa
import pytest

from lakesink_catalog.connect.catalog import connect
from servers.jars import REST_REFERENCE, fetched
from servers.rest_reference import rest_reference
from testkit.http_servers import skipped_where_missing

pytestmark = pytest.mark.soak  # a machine for the short tests has no Maven


@pytest.fixture(autouse=True, scope="module")
def _jars() -> None:
    with skipped_where_missing():
        fetched(REST_REFERENCE)


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    with rest_reference(tmp_path) as server:
        catalog = connect("lake", {"type": "rest", "uri": server.uri})
        catalog.create_namespace("demo")
        table = catalog.create_table("demo.events", schema)
        table.append(pa.table({"id": [1, 2]}, schema=schema))
        server.kill()
        server.start()
        assert catalog.load_table("demo.events").scan().to_arrow().num_rows == 2
        pid = server.process.pid if server.process else 0
    assert not Path(f"/proc/{pid}").exists()
    beside = connect("lake", {"uri": f"sqlite:///{server.database}", "warehouse": server.warehouse})
    assert beside.list_tables("demo") == [("demo", "events")]
