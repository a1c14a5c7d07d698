"""The first snapshots of a table, on a catalog that does not check that the table has no head."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.preflight import check_letters, check_start
from lakesink.sinks.iceberg.sink import IcebergSink
from lakesink.writer.plan import OnMalformed
from lakesink_catalog.commit import first_snapshot
from lakesink_catalog.commit.first_snapshot import unprotected_by
from lakesink_catalog.commit.forget import Forgetting
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import SinkKey, SinkKind, stream_batch, transaction_batch
from lakesink_protocol.outcome import Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter, receipts_of
from lakesink_protocol.votes import Vote, Votes
from testkit.batches import Writer
from testkit.rest_catalog import RestService
from tests.certify.liars import NessieLike, TakesNoHeadForAnyHead, served

TABLE, LETTERS, CHANGES = "demo.events", "demo.events__dead_letters", "demo.changes"
ROWS = pa.schema([("id", pa.int64())])
REFUSED = "LAKESINK_FIRST_SNAPSHOT_UNPROTECTED"


@dataclass(frozen=True)
class Served:
    service: RestService
    found: FoundCatalog
    warehouse: Path

    def table(self, name: str = TABLE) -> Table:
        return self.service.backing.load_table(name)

    def ids(self) -> list[int]:
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())


@pytest.fixture(params=[NessieLike])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    local = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    backing = (TakesNoHeadForAnyHead if request.param is NessieLike else SqlCatalog)("backing", **local)
    service = request.param(backing)
    with served(service) as uri:
        yield Served(service, CatalogConfig("lake", {"type": "rest", "uri": uri}).find(), tmp_path / "w")


def write(
    catalog: Catalog, sink_id: str, ids: list[int], kind: SinkKind = SinkKind.STREAM, **options: Any
) -> Mapping[str, Outcome]:
    needed = {"sink_id": sink_id, "checkpoint": "/nowhere"} if kind is SinkKind.STREAM else {}
    settings = Settings.parse({**needed, "create_table": True, **options}, kind=kind)
    sink = IcebergSink(TABLE, SinkKey(sink_id, kind=kind), lambda: catalog, settings, ROWS)
    batch = transaction_batch(0) if kind is SinkKind.TXN else stream_batch(0, sink_id, start=[0], end=[1])

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        [(name, writer)] = writers.items()
        rows = pa.record_batch([pa.array(ids, pa.int64())], schema=ROWS)
        return Votes(1, [Vote(0, receipts_of(name, writer, writer.write(0, iter([rows]))))])

    return run_batch(batch, [sink], job)


def overtaken(lake: Served) -> None:
    """Both sinks have prepared their first batch when the first request is sent; the second one lands before it."""
    late = lake.found.open()
    send = late.commit_table

    def overtake(*request: Any) -> Any:
        if not lake.service.commits:
            [second] = write(lake.found.open(), "b", [4, 5, 6]).values()
            assert isinstance(second, Committed)
        return send(*request)

    late.commit_table = overtake  # type: ignore[assignment, method-assign] # of this connection only
    [first] = write(late, "a", [1, 2, 3]).values()
    assert isinstance(first, Committed)


def follow_the_advice(refused: CatalogError, lake: Served, name: str = TABLE) -> None:
    assert f"load_catalog('lake').load_table({name!r}); table.append(table.schema().as_arrow().empty_table())" in str(
        refused
    )
    table = lake.found.open().load_table(name)
    table.append(table.schema().as_arrow().empty_table())


def test_where_nothing_is_refused_both_are_told_that_they_committed_and_rows_are_lost(
    lake: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_snapshot, "UNPROTECTED", {})
    overtaken(lake)
    assert lake.ids() == [1, 2, 3]


@pytest.mark.parametrize("kind", SinkKind)
def test_every_first_batch_is_refused_before_anything_is_written(lake: Served, kind: SinkKind) -> None:
    for sink_id in ("a", "b"):
        with pytest.raises(CatalogError, match=REFUSED):
            write(lake.found.open(), sink_id, [1, 2, 3], kind)
    assert lake.service.commits == 0
    assert list(lake.warehouse.rglob("*.parquet")) == []


def test_after_the_advice_of_the_refusal_both_batches_are_in(lake: Served) -> None:
    with pytest.raises(CatalogError, match=REFUSED) as refused:
        write(lake.found.open(), "a", [1, 2, 3])
    follow_the_advice(refused.value, lake)
    lake.service.commits = 0
    overtaken(lake)
    assert lake.ids() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("lake", [RestService], indirect=True)
def test_an_ordinary_catalog_takes_both_first_batches(lake: Served) -> None:
    overtaken(lake)
    assert lake.ids() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("side", "options"),
    [
        (LETTERS, {"on_malformed": "quarantine"}),
        (CHANGES, {"mode": "upsert", "keys": ["id"], "changelog_table": CHANGES}),
    ],
)
def test_a_side_table_is_refused_before_the_job_and_gets_its_first_snapshot_in_the_same_way(
    lake: Served, side: str, options: dict[str, Any]
) -> None:
    for name in (TABLE, side):
        with pytest.raises(CatalogError, match=rf"{REFUSED}\] {name} has no snapshot") as refused:
            write(lake.found.open(), "a", [1, 2, 3], **options)
        follow_the_advice(refused.value, lake, name)
    assert list(lake.warehouse.rglob("data/*.parquet")) == []
    assert isinstance(write(lake.found.open(), "a", [1, 2, 3], **options)[f"{TABLE}@main"], Committed)
    assert lake.ids() == [1, 2, 3]


def test_a_stream_is_refused_before_it_starts(lake: Served) -> None:
    settings, key = Settings(on_malformed=OnMalformed.QUARANTINE), SinkKey("a")
    table = create_table(lake.found.open(), TABLE, ROWS)
    with pytest.raises(CatalogError, match=REFUSED):
        check_start(lake.found, TABLE, key, settings, ROWS, case_sensitive=False)
    table.append(ROWS.empty_table())
    check_start(lake.found, TABLE, key, settings, ROWS, case_sensitive=False)
    create_table(lake.found.open(), LETTERS, ROWS)
    with pytest.raises(CatalogError, match=rf"{REFUSED}\] {LETTERS}"):
        check_letters(lake.found, TABLE, key, settings, ())


def test_a_sink_of_a_table_without_a_head_is_not_forgotten(lake: Served) -> None:
    key = SinkKey("a")
    table = create_table(lake.found.open(), TABLE, ROWS, properties={key.ledger_property: "{}"})
    with pytest.raises(CatalogError, match=REFUSED):
        Forgetting(lambda: table, key).run()
    assert lake.service.commits == 0


def test_the_commit_itself_refuses_a_table_whose_properties_are_those_of_such_a_catalog(tmp_path: Path) -> None:
    """The properties of the table are enough: a proxy may leave out those of the configuration."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w")
    create_table(catalog, TABLE, ROWS, properties={"nessie.catalog.content-id": "1"})
    with pytest.raises(CatalogError, match=REFUSED):
        Writer(catalog).commit(0)
    assert catalog.load_table(TABLE).metadata.snapshots == []


def test_a_catalog_is_known_by_its_own_properties() -> None:
    assert unprotected_by({"uri": "http://nessie.example", "warehouse": "nessie.wh"}, {"owner": "nessie"}) is None
    assert unprotected_by({"nessie.core-base-uri": "http://x"}, {}) == "Nessie"
    assert unprotected_by({}, {"nessie.commit.id": "1"}) == "Nessie"
