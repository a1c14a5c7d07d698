import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from lakesink.sinks.iceberg.upkeep import maintenance
from lakesink.sinks.iceberg.upkeep.health import Health
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.ledger import MAINTENANCE
from tests.spark.adapters import Adapter
from tests.spark.streams import (
    FIRST_FILE_TIME,
    LOST_METADATA,
    counter_stream,
    failure,
    file_stream,
    forget_commits,
    run,
    run_batches,
    stopped_at,
    write_files,
)

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.events"
DEFAULTS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "create_table": True}


def by_stream(rows: Any, **options: Any) -> DataStreamWriter:
    return lakesink.stream(rows, TABLE, **(DEFAULTS | options))


@pytest.fixture
def into(either: Adapter) -> Adapter:
    """A stream into the table, by each of the adapters."""
    return lambda rows, **options: either(rows, TABLE, **(DEFAULTS | options))


def _table() -> Any:
    return load_table(connect(create=False), TABLE)


def _ids(branch: str | None = None) -> list[int]:
    table = _table()
    snapshot = table.snapshot_by_name(branch).snapshot_id if branch else None
    return sorted(table.scan(snapshot_id=snapshot).to_arrow()["id"].to_pylist())


def _outcomes() -> list[tuple[int, int, str]]:
    return [(record.batch_id, record.rows, record.outcome) for record in lakesink.history(TABLE)]


def test_a_stream_of_files_becomes_a_table_one_snapshot_a_batch(spark: Any, into: Adapter, source: Path) -> None:
    run(into(file_stream(spark, source)))
    assert _ids() == list(range(30))
    assert _outcomes() == [(0, 10, "committed"), (1, 10, "committed"), (2, 10, "committed")]
    assert [record.offsets for record in lakesink.history(TABLE)] == [f'[{{"logOffset":{n}}}]' for n in range(3)]


@pytest.mark.dear
def test_a_relative_checkpoint_lies_in_pythons_folder(spark: Any, source: Path, tmp_path: Path) -> None:
    run(by_stream(file_stream(spark, source), checkpoint="deep/ck"))
    assert (tmp_path / "deep" / "ck" / "metadata").exists()


def test_a_replayed_batch_adds_neither_snapshot_nor_file(spark: Any, into: Adapter, source: Path, home: Path) -> None:
    run(into(file_stream(spark, source)))
    files = sorted(home.rglob("*.parquet"))
    forget_commits(Path("ck"), 1)
    run(into(file_stream(spark, source)))
    assert len(_outcomes()) == 3
    assert sorted(home.rglob("*.parquet")) == files


def test_a_stream_goes_on_where_it_was(spark: Any, source: Path) -> None:
    run(by_stream(file_stream(spark, source)))
    write_files(source, 2, first=3)
    run(by_stream(file_stream(spark, source)))
    assert _ids() == list(range(50))
    assert [batch for batch, _, _ in _outcomes()] == [0, 1, 2, 3, 4]


def test_a_partitioned_table_gets_files_by_partition(spark: Any, source: Path) -> None:
    run(by_stream(file_stream(spark, source), partition_by="bucket(4, text), id"))
    assert _ids() == list(range(30))
    assert {len(task.file.partition) for task in _table().scan().plan_files()} == {2}


def test_empty_batches_are_snapshots_without_rows(spark: Any, source: Path) -> None:
    run(by_stream(file_stream(spark, source).where("id between 10 and 19")))
    assert _ids() == list(range(10, 20))
    assert [rows for _, rows, _ in _outcomes()] == [0, 10, 0]


@pytest.mark.parametrize(
    ("either", "failpoint"),
    [
        *(("stream", failpoint) for failpoint in ("batch-start", "after-prepared", "after-commit")),
        ("format", "after-prepared"),
        *(
            pytest.param("format", failpoint, marks=pytest.mark.nightly)
            for failpoint in ("batch-start", "after-commit")
        ),
    ],
    indirect=["either"],
)
def test_a_batch_that_failed_anywhere_is_completed_by_the_next_run(
    spark: Any, into: Adapter, source: Path, monkeypatch: pytest.MonkeyPatch, failpoint: str
) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", f"{failpoint}@1=raise")
    assert "FailpointReached" in failure(into(file_stream(spark, source)))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(into(file_stream(spark, source)))
    assert _ids() == list(range(30))
    recovered = "recovered" if failpoint == "after-prepared" else "committed"
    assert _outcomes() == [(0, 10, "committed"), (1, 10, recovered), (2, 10, "committed")]


@pytest.mark.parametrize(
    ("either", "failpoint"),
    [
        ("stream", "after-prepared"),
        ("stream", "after-call"),
        ("format", "after-call"),
        pytest.param("format", "after-prepared", marks=pytest.mark.nightly),
    ],
    indirect=["either"],
)
def test_stopping_a_query_while_it_commits_lets_the_commit_end_and_the_replay_is_exact(
    spark: Any, into: Adapter, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failpoint: str
) -> None:
    paused = tmp_path / "paused"
    monkeypatch.setenv("LAKESINK_FAILPOINTS", f"{failpoint}@1=pause:{paused}")
    stopped_at(paused, into(file_stream(spark, source)).start())
    assert [batch for batch, _, _ in _outcomes()] == [0, 1]
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(into(file_stream(spark, source)))
    assert _ids() == list(range(30))
    assert _outcomes() == [(0, 10, "committed"), (1, 10, "committed"), (2, 10, "committed")]


def test_a_lost_checkpoint_is_noticed(spark: Any, into: Adapter, source: Path) -> None:
    run(into(file_stream(spark, source)))
    assert "[LAKESINK_NEW_CHECKPOINT]" in failure(into(file_stream(spark, source), checkpoint="other"))
    assert _ids() == list(range(30))


def test_lost_metadata_of_a_checkpoint_is_noticed(spark: Any, source: Path) -> None:
    run(by_stream(file_stream(spark, source)))
    write_files(source, 1, first=3)
    for name in ("metadata", ".metadata.crc"):
        (Path("ck") / name).unlink()
    text = failure(by_stream(file_stream(spark, source)))
    assert any(told in text for told in LOST_METADATA)
    assert _ids() == list(range(30))


def test_two_sinks_share_a_table(spark: Any, source: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "more", 2, first=100)
    run(by_stream(file_stream(spark, source)))
    run(by_stream(file_stream(spark, tmp_path / "more"), sink_id="more", checkpoint="ck-more"))
    assert _ids() == [*range(30), *range(1000, 1020)]
    assert [record.batch_id for record in lakesink.history(TABLE, sink="more")] == [0, 1]


@pytest.mark.parametrize(
    ("either", "zone"),
    [
        *(("stream", zone) for zone in ("America/New_York", "Asia/Kolkata", "UTC")),
        ("format", "Asia/Kolkata"),
        *(pytest.param("format", zone, marks=pytest.mark.nightly) for zone in ("America/New_York", "UTC")),
    ],
    indirect=["either"],
)
def test_timestamps_are_the_same_instants_in_any_session_time_zone(
    spark: Any, into: Adapter, source: Path, zone: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        run(into(file_stream(spark, source).selectExpr("id", "timestamp_seconds(1700000000 + id * 3600) as at")))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    rows = _table().scan().to_arrow()
    assert [int(at.timestamp()) for at in rows["at"].to_pylist()] == [
        1700000000 + number * 3600 for number in rows["id"].to_pylist()
    ]


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
def test_rows_written_by_the_driver_are_as_those_written_by_executors(spark: Any, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        run_batches(by_stream(counter_stream(spark)), 2)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    rows = _table().scan().to_arrow()
    for number, at in zip(rows["id"].to_pylist(), rows["at"].to_pylist(), strict=True):
        assert int(at.timestamp()) == FIRST_FILE_TIME + number // 10
    assert _ids() == list(range(len(rows)))
    assert {rows for _, rows, _ in _outcomes()} == {10}


def test_a_column_that_does_not_fit_the_table_is_refused_before_any_row_is_read(
    spark: Any, source: Path, home: Path
) -> None:
    run(by_stream(file_stream(spark, source)))
    files = sorted(home.rglob("*.parquet"))
    write_files(source, 1, first=3)
    renamed = file_stream(spark, source).selectExpr("id", "text as txet")
    with pytest.raises(lakesink.WriteError, match=r"(?s)LAKESINK_SCHEMA_MISMATCH.*txet"):
        by_stream(renamed)
    assert sorted(home.rglob("*.parquet")) == files


def test_each_batch_leaves_one_line_with_its_numbers(
    spark: Any, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakesink")
    run(lakesink.stream(file_stream(spark, source), TABLE, **DEFAULTS))
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("lakesink.batch.")]
    assert [line.split(" rows=")[1].split(" bytes=")[0] for line in lines] == ["10 files=1"] * 3
    assert all("table=demo.events sink=events batch=" in line for line in lines)


def test_two_queries_of_one_driver_write_two_tables(spark: Any, source: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "more", 3, first=100)
    queries = [
        lakesink.stream(
            file_stream(spark, folder), table, sink_id="s", checkpoint=f"ck-{folder.name}", create_table=True
        )
        .trigger(availableNow=True)
        .start()
        for folder, table in [(source, "demo.events"), (tmp_path / "more", "demo.more")]
    ]
    for query in queries:
        query.awaitTermination()
    assert _ids() == list(range(30))
    assert [record.rows for record in lakesink.history("demo.more")] == [10, 10, 10]


@pytest.mark.parametrize("asked", [True, False])
def test_a_query_that_ends_by_itself_maintains_its_table_then_without_the_budget(
    spark: Any, source: Path, *, asked: bool
) -> None:
    """Between its batches, the budget is too short for any group of files but the first, which shows the pace."""
    option = {"maintenance": {"budget": "1 ms", "min_input_files": 2}} if asked else {}
    run(by_stream(file_stream(spark, source), **option))
    for thread in threading.enumerate():
        if thread.name.startswith("end of "):
            thread.join()
    assert _ids() == list(range(30))
    replaced = [one for one in _table().metadata.snapshots if MAINTENANCE in one.summary.additional_properties]
    assert bool(replaced) == asked
    assert len(list(_table().scan().plan_files())) == (1 if asked else 3)


def test_stopping_a_query_while_executors_maintain_its_table_is_quiet(
    spark: Any, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    busy = tmp_path / "busy"

    def held(_: Any) -> bytes:
        busy.touch()
        while True:
            time.sleep(0.05)

    monkeypatch.setattr(maintenance, "EXECUTORS_FROM_BYTES", 0)
    monkeypatch.setattr(maintenance, "rewrite_in_executor", held)
    monkeypatch.setattr(Health, "past", ("many files",))
    option = {"budget": "1 ms", "min_input_files": 2, "gate": True}
    query = by_stream(file_stream(spark, source), maintenance=option).start()
    while not busy.exists():
        assert query.isActive, query.exception()
        time.sleep(0.05)
    query.stop()
    assert query.exception() is None
    assert "lakesink.maintenance" not in caplog.text.replace("lakesink.maintenance.replaced", "")
    run(by_stream(file_stream(spark, source)))
    assert _ids() == list(range(30))
