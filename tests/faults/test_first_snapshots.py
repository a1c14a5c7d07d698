"""The first snapshots of a table, on a catalog that does not check that the table has no head."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableRequest, StagedTable, Table

from lakesink.rows.letters import LETTERS as LETTERS_COLUMNS
from lakesink.rows.plan import OnMalformed
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.preflight import check_letters, check_start
from lakesink_catalog.connect import first_snapshot
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import SinkKey, SinkKind, stream_batch, transaction_batch
from lakesink_protocol.outcome import Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from lakesink_tools.cli.main import main
from lakesink_tools.operate.forget import Forgetting
from testkit.http_servers import error_answer
from testkit.rest_catalog import RestService
from tests.certify.liars import TakesNoHeadForAnyHead, served

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


@pytest.fixture(params=[TakesNoHeadForAnyHead])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    local = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    service = RestService(request.param("backing", **local))
    with served(service) as uri:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
        yield Served(service, CatalogConfig("lake", {"type": "rest", "uri": uri}).find(), tmp_path / "w")


def write(
    catalog: Catalog, sink_id: str, ids: list[int], kind: SinkKind = SinkKind.STREAM, **options: Any
) -> Mapping[str, Outcome]:
    needed = {"sink_id": sink_id, "checkpoint": "/nowhere"} if kind is SinkKind.STREAM else {}
    entry = Entry.STREAM if kind is SinkKind.STREAM else Entry.FORMAT_WRITE
    settings = Settings.parse({**needed, "create_table": True, **options}, entry=entry)
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
    send, seconds = late.commit_table, [lake.found.open()]

    def overtake(table: Table, requirements: Any, updates: Any) -> Any:
        if seconds and table.name()[-1] == "events" and not isinstance(table, StagedTable):
            [second] = write(seconds.pop(), "b", [4, 5, 6]).values()
            assert isinstance(second, Committed)
        return send(table, requirements, updates)

    late.commit_table = overtake  # type: ignore[method-assign] # of this connection only
    [first] = write(late, "a", [1, 2, 3]).values()
    assert isinstance(first, Committed)
    assert not seconds


def made_by_others(lake: Served, name: str = TABLE, columns: pa.Schema = ROWS) -> Table:
    """Without a snapshot, as other engines make a table."""
    return create_table(lake.service.backing, name, columns)


def follow_the_advice(refused: CatalogError) -> None:
    command = re.search(r"`lakesink (first-snapshot \S+ --catalog lake)`", refused.action)
    assert command is not None, refused.action
    done = CliRunner().invoke(main, [*command[1].split(), "--yes"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_where_nothing_is_refused_both_are_told_that_they_committed_and_rows_are_lost(
    lake: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_snapshot, "_asked", lambda *_: True)
    overtaken(lake)
    assert lake.ids() == [1, 2, 3]


@pytest.mark.parametrize("lake", [TakesNoHeadForAnyHead, SqlCatalog], indirect=True)
def test_of_a_table_that_lakesink_creates_both_first_batches_are_in(lake: Served) -> None:
    overtaken(lake)
    assert lake.ids() == [1, 2, 3, 4, 5, 6]
    assert lake.service.backing.list_tables("demo") == [("demo", "events")], "the probe leaves nothing"


def test_a_table_is_created_together_with_its_first_snapshot(lake: Served) -> None:
    table = create_table(lake.found.open(), TABLE, ROWS, "bucket(4, id)", {"owner": "me"}, keys=["id"])
    [first] = table.metadata.snapshots
    assert table.metadata.refs["main"].snapshot_id == first.snapshot_id
    assert table.schema().identifier_field_names() == {"id"}
    assert (str(table.spec().fields[0].transform), table.properties["owner"]) == ("bucket[4]", "me")
    assert table.scan().to_arrow().num_rows == 0


def test_of_two_drivers_that_create_a_table_the_later_one_takes_that_of_the_first(lake: Served) -> None:
    late = lake.found.open()
    stage, rivals = late.create_table_transaction, []

    def overtaken_once_staged(*asked: Any, **more: Any) -> Any:
        staged = stage(*asked, **more)
        rivals.append(create_table(lake.found.open(), TABLE, ROWS))
        return staged

    late.create_table_transaction = overtaken_once_staged  # type: ignore[method-assign] # of this connection only
    created = create_table(late, TABLE, ROWS)
    [rival] = rivals
    assert created.metadata == rival.metadata


@pytest.mark.parametrize("kind", SinkKind)
def test_a_first_batch_for_a_table_of_others_is_refused_before_anything_is_written(
    lake: Served, kind: SinkKind
) -> None:
    made_by_others(lake)
    for sink_id in ("a", "b"):
        with pytest.raises(CatalogError, match=REFUSED):
            write(lake.found.open(), sink_id, [1, 2, 3], kind)
    assert lake.table().metadata.snapshots == []
    assert list(lake.warehouse.rglob("*.parquet")) == []


def test_after_the_advice_of_the_refusal_both_batches_are_in(lake: Served) -> None:
    made_by_others(lake)
    with pytest.raises(CatalogError, match=REFUSED) as refused:
        write(lake.found.open(), "a", [1, 2, 3])
    assert CliRunner().invoke(main, ["first-snapshot", TABLE, "--catalog", "lake"]).exit_code == 2, "it asks first"
    assert lake.table().metadata.snapshots == []
    follow_the_advice(refused.value)
    overtaken(lake)
    assert lake.ids() == [1, 2, 3, 4, 5, 6]
    [*_, newest] = lake.table().metadata.snapshots
    follow_the_advice(refused.value)
    assert lake.table().metadata.snapshots[-1] == newest, "a table that has a snapshot gets no other one"


@pytest.mark.parametrize(
    ("side", "options"),
    [
        (LETTERS, {"on_malformed": "quarantine"}),
        (CHANGES, {"mode": "upsert", "keys": ["id"], "changelog_table": CHANGES}),
    ],
)
def test_a_side_table_of_others_is_refused_before_the_job_and_gets_its_first_snapshot_in_the_same_way(
    lake: Served, side: str, options: dict[str, Any]
) -> None:
    made_by_others(lake, side, LETTERS_COLUMNS if side == LETTERS else ROWS)
    with pytest.raises(CatalogError, match=rf"{REFUSED}\] {side} has no snapshot") as refused:
        write(lake.found.open(), "a", [1, 2, 3], **options)
    assert list(lake.warehouse.rglob("data/*.parquet")) == []
    follow_the_advice(refused.value)
    assert isinstance(write(lake.found.open(), "a", [1, 2, 3], **options)[f"{TABLE}@main"], Committed)
    assert lake.ids() == [1, 2, 3]


def test_a_stream_is_refused_before_it_starts(lake: Served) -> None:
    settings, key = Settings(on_malformed=OnMalformed.QUARANTINE), SinkKey("a")
    table = made_by_others(lake)
    with pytest.raises(CatalogError, match=REFUSED):
        check_start(lake.found, TABLE, key, settings, ROWS, case_sensitive=False)
    table.append(ROWS.empty_table())
    check_start(lake.found, TABLE, key, settings, ROWS, case_sensitive=False)
    made_by_others(lake, LETTERS)
    with pytest.raises(CatalogError, match=rf"{REFUSED}\] {LETTERS}"):
        check_letters(lake.found, TABLE, key, settings, ())


def test_a_sink_of_a_table_without_a_head_is_not_forgotten(lake: Served) -> None:
    key = SinkKey("a")
    made_by_others(lake)
    with lake.table().transaction() as change:
        change.set_properties({key.ledger_property: "{}"})
    table = lake.found.open().load_table(TABLE)
    with pytest.raises(CatalogError, match=REFUSED):
        Forgetting(lambda: table, key).run()
    assert lake.table().metadata.snapshots == []


def test_a_scratch_table_that_cannot_be_dropped_is_named_and_what_it_showed_holds(
    lake: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_others(lake)
    monkeypatch.setattr(lake.service, "_drop", lambda _: error_answer(403, "ForbiddenException", "ask an admin"))
    with pytest.raises(CatalogError, match=REFUSED):
        write(lake.found.open(), "a", [1, 2, 3])
    [left] = [name for _, name in lake.service.backing.list_tables("demo") if name != "events"]
    [told] = [line.getMessage() for line in caplog.records if "first-snapshot.unproven" in line.getMessage()]
    assert f"scratch=demo.{left} " in told


def test_without_the_right_to_make_a_table_the_log_says_that_nothing_is_proved(
    lake: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_others(lake)
    monkeypatch.setattr(lake.service, "_create", lambda *_: error_answer(403, "ForbiddenException", "ask an admin"))
    catalog = lake.found.open()
    write(catalog, "a", [1, 2, 3])
    write(catalog, "b", [4, 5, 6])
    assert lake.ids() == [1, 2, 3, 4, 5, 6]
    told = [line.getMessage() for line in caplog.records if "first-snapshot.unproven" in line.getMessage()]
    assert len(told) == 1, "each connection is asked once"
    assert "ask an admin" in told[0]


@pytest.mark.parametrize("status", [400, 403])
def test_a_service_that_says_that_it_is_nessie_needs_no_proof(
    lake: Served, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_others(lake)
    monkeypatch.setattr(lake.service, "_create", lambda *_: error_answer(status, "Refused", "ask an admin"))
    catalog = lake.found.open()
    catalog.properties["nessie.is-nessie-catalog"] = "true"
    with pytest.raises(CatalogError, match=REFUSED):
        write(catalog, "a", [1, 2, 3])
    assert list(lake.warehouse.rglob("*.parquet")) == []


@pytest.mark.parametrize("fault", ["_create", "_committed"])
def test_an_outage_in_the_question_ends_the_start_and_is_no_answer(
    lake: Served, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_others(lake)
    catalog = lake.found.open()
    with monkeypatch.context() as outage:
        outage.setattr(lake.service, fault, lambda *_: error_answer(503, "ServiceUnavailable", "come back"))
        with pytest.raises(CatalogError, match="come back"):
            write(catalog, "a", [1, 2, 3])
    with pytest.raises(CatalogError, match=REFUSED):
        write(catalog, "a", [1, 2, 3])
    assert [name for _, name in lake.service.backing.list_tables("demo")] == ["events"]


def test_a_service_that_refuses_every_property_proves_nothing(
    lake: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_others(lake)
    committed = lake.service._committed  # noqa: SLF001 - to refuse some of them

    def refuses(name: tuple[str, ...], wanted: CommitTableRequest) -> Any:
        if name[-1].startswith(first_snapshot.PROBE) and len(wanted.updates) == 1:
            return error_answer(409, "CommitFailedException", "no properties")
        return committed(name, wanted)

    monkeypatch.setattr(lake.service, "_committed", refuses)
    write(lake.found.open(), "a", [1, 2, 3])
    assert any("first-snapshot.unproven" in line.getMessage() for line in caplog.records)


def test_a_first_snapshot_of_unknown_outcome_is_not_called_unwritten(lake: Served) -> None:
    made_by_others(lake)
    lake.service.after = [lambda: error_answer(500, "Timeout", "gateway")]
    result = CliRunner().invoke(main, ["first-snapshot", TABLE, "--catalog", "lake", "--yes"])
    assert result.exit_code == 2
    assert "LAKESINK_COMMIT_UNRESOLVED" in result.stderr
    assert f"Drop {TABLE}, create it again" in result.stderr
