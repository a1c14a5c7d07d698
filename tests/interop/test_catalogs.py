"""Catalogs of others: a real stream whose driver is killed at its bad moments, and rival writers of one table."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import StringType

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.ledger import parse_entry
from lakesink_tools.audit.audit import audit
from servers.catalog_clients import made_importable
from servers.catalogs import CATALOGS, NESSIE, local_path
from servers.hive import hive
from testkit.harness import Stream, expected, own_snapshots, rows_of

pytestmark = pytest.mark.interop
COLUMNS = pa.schema([("file", pa.int64()), ("row", pa.int64())])
FILES = 4
KILLS = ("after-prepared@0=kill", "after-call@0=kill", "before-call@1=kill", "after-commit@2=kill")
WRITERS, COMMITS = 4, 4
LOCK_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Lake:
    """A catalog that runs.

    Attributes:
        keeps_history: False if it keeps one snapshot only.
    """

    folder: Path
    properties: Mapping[str, str]
    keeps_history: bool

    def connect(self) -> Catalog:
        return connect("lake", self.properties)

    def create(self, name: str) -> Table:
        """Together with its first snapshot, if the catalog does not protect that one."""
        return create_table(self.connect(), name, COLUMNS)

    def rows(self, name: str) -> Counter[tuple[int, int]]:
        return rows_of(load_table(self.connect(), name), path_of=lambda location: local_path(location, self.folder))


@pytest.fixture(params=CATALOGS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    with CATALOGS[request.param](tmp_path) as properties:
        yield Lake(tmp_path, properties, keeps_history=request.param != NESSIE)


@pytest.mark.nightly
def test_a_stream_whose_driver_is_killed_at_its_bad_moments_writes_every_row_once(lake: Lake) -> None:
    named = {f"PYICEBERG_CATALOG__LAKE__{_variable(key)}": value for key, value in lake.properties.items()}
    stream = Stream(lake.folder / "stream", {"catalog": "lake"}, environment=named)
    lake.create(stream.table)
    stream.add_files(0, FILES)
    for kill in KILLS:
        assert stream.run(kill) == -9, stream.log()
    assert stream.run() == 0, stream.log()

    assert lake.rows(stream.table) == expected(range(FILES))
    table = load_table(lake.connect(), stream.table)
    assert parse_entry(table.properties[SinkKey(stream.sink_id).ledger_property]).batch_id == FILES - 1
    proof = audit(table)
    assert (proof.findings, proof.unchecked, proof.history_kept) == ((), 0, lake.keeps_history)
    if lake.keeps_history:
        assert [batch for batch, _, _ in own_snapshots(table)] == list(range(FILES))


def test_of_rival_appends_to_a_table_with_a_head_each_acknowledged_one_is_in_the_table(lake: Lake) -> None:
    name = "demo.rivals"
    lake.create(name).append(_row(-1, 0))
    acknowledged: Counter[tuple[int, int]] = Counter({(-1, 0): 1})

    def writes(writer: int) -> None:
        catalog = lake.connect()
        for number in range(COMMITS):
            while not _appended(catalog, name, _row(writer, number)):
                pass
            acknowledged[writer, number] += 1

    writers = [threading.Thread(target=writes, args=(writer,)) for writer in range(WRITERS)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert acknowledged.total() == 1 + WRITERS * COMMITS
    assert lake.rows(name) == acknowledged


def test_a_schema_evolves(lake: Lake) -> None:
    with lake.create("demo.evolves").update_schema() as change:
        change.add_column("note", StringType())
    assert load_table(lake.connect(), "demo.evolves").schema().column_names == ["file", "row", "note"]


def _appended(catalog: Catalog, name: str, rows: pa.Table) -> bool:
    """Append on the head that is loaded, in one request; False if it was refused."""
    table = catalog.load_table(name)
    transaction = table.transaction()
    transaction.append(rows)
    try:
        catalog.commit_table(table, transaction._requirements, transaction._updates)  # noqa: SLF001 - without PyIceberg's own retry
    except CommitFailedException:
        return False
    return True


def _row(file: int, row: int) -> pa.Table:
    return pa.table([[file], [row]], schema=COLUMNS)


def _variable(key: str) -> str:
    return key.upper().replace("-", "_").replace(".", "__")


@pytest.mark.nightly
def test_a_lock_of_hive_that_a_dead_driver_left_is_freed_and_then_a_commit_lands(tmp_path: Path) -> None:
    with hive(tmp_path / "hive", lock_seconds=LOCK_SECONDS) as server:
        made_importable()
        catalog: Any = connect("lake", {"type": "hive", "uri": server.uri, "lock-check-retries": "1"})
        create_table(catalog, "demo.locked", COLUMNS)
        with catalog._client as metastore:  # noqa: SLF001 - PyIceberg shows it to nobody
            metastore.lock(catalog._create_lock_request("demo", "locked"))  # noqa: SLF001 - as above
        assert not _appended(catalog, "demo.locked", _row(0, 0))
        while not _appended(catalog, "demo.locked", _row(0, 0)):
            time.sleep(1)
        assert catalog.load_table("demo.locked").scan().count() == 1
