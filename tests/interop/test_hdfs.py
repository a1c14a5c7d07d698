"""Warehouse and checkpoint on HDFS: the driver dies, the batch is replayed, and every row is there once."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import HadoopFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from servers.hdfs import HDFSCluster, client_environment, hdfs
from testkit.harness import Stream, expected, kill_all, own_snapshots, wait_for

pytestmark = pytest.mark.interop
FILES = 3


@dataclass(frozen=True)
class HDFSStream(Stream):
    """The stream of the tests, whose table and checkpoint are on HDFS; only the catalog is a local database."""

    uri: str = ""

    @property
    def properties(self) -> dict[str, str]:
        return {"uri": f"sqlite:///{self.root}/catalog.db", "warehouse": f"{self.uri}/warehouse"}

    def config(self) -> dict[str, Any]:
        return {**super().config(), "checkpoint": f"{self.uri}/checkpoint"}

    def load(self) -> Table:
        return SqlCatalog("lake", **self.properties).load_table(self.table)

    def rows(self, branch: str = "main") -> Counter[tuple[int, int]]:
        assert branch == "main"
        found: pa.Table = self.load().scan().to_arrow()
        return Counter((row["file"], row["row"]) for row in found.to_pylist())


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HDFSCluster]:
    for name, value in client_environment().items():
        monkeypatch.setenv(name, value)
    with hdfs(tmp_path / "hdfs") as running:
        yield running


@pytest.fixture
def stream(cluster: HDFSCluster, tmp_path: Path) -> HDFSStream:
    bare = HDFSStream(tmp_path / "stream", {"catalog": "lake", "create_table": True}, uri=cluster.uri)
    environment = {f"PYICEBERG_CATALOG__LAKE__{key.upper()}": value for key, value in bare.properties.items()}
    return HDFSStream(bare.root, bare.options, environment=environment, uri=cluster.uri)


def test_a_driver_killed_with_a_prepared_batch_leaves_every_row_once(
    stream: HDFSStream, cluster: HDFSCluster, tmp_path: Path
) -> None:
    stream.add_files(0, FILES)
    window = tmp_path / "prepared"
    with stream.driver(f"after-prepared@1=pause:{window}") as driver:
        wait_for(window, driver)
        kill_all(driver)
    cluster.kill()
    cluster.start()
    assert stream.run() == 0, stream.log()
    assert stream.rows() == expected(range(FILES))
    marks = [(batch, outcome) for batch, outcome, _ in own_snapshots(stream.load())]
    assert marks == [(0, "committed"), (1, "recovered"), (2, "committed")]
    assert HadoopFileSystem.from_uri(cluster.uri).get_file_info("/checkpoint/commits/2").is_file
