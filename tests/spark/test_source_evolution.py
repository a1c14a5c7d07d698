"""Named sources, as Spark 4.2 and later have them: streams whose sources are added, removed and reordered."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_tools.audit.audit import audit
from lakesink_tools.audit.checkpoint import read_done
from lakesink_tools.checks.doctor.checkpoint import check_checkpoint
from lakesink_tools.checks.doctor.finding import Standing
from lakesink_tools.operate.rewind import RewindableCheckpoint
from tests.spark.adapters import Adapter
from tests.spark.streams import SCHEMA, failure, forget_commits, ids, run, write_files

pytestmark = pytest.mark.usefixtures("home", "named")
TABLE = "demo.events"
OPTIONS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "create_table": True}
SETTINGS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


@pytest.fixture
def named(spark: Any) -> Iterator[None]:
    """Sources have names; their offsets are logged by name, as 4.3 does by itself."""
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    yield
    for key in SETTINGS:
        spark.conf.unset(key)


@pytest.fixture
def sources(spark: Any, tmp_path: Path) -> Callable[..., DataFrame]:
    """The rows of folders, each a source of its own name, in the order given; two files of each to begin with."""
    for position, name in enumerate(("alpha", "beta", "gamma")):
        write_files(tmp_path / name, 2, first=10 * position)

    def rows(*names: str) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        first, *rest = (reader.name(name).json(str(tmp_path / name)) for name in names)
        for other in rest:
            first = first.union(other)
        return first  # type: ignore[no-any-return] # PySpark's reader is untyped here

    return rows


def _table() -> Any:
    return load_table(connect(create=False), TABLE)


def _numbers(*files: int) -> list[int]:
    return sorted(10 * file + row for file in files for row in range(10))


def _in_table() -> list[int]:
    return ids(_table().scan().to_arrow().to_pylist())


def _check_proof() -> None:
    proof = audit(_table(), done=read_done("ck"))
    assert not proof.findings
    assert all(found.standing is Standing.OK for found in check_checkpoint("ck", _table()))


def test_sources_are_reordered_added_and_removed_and_every_row_is_there_once(
    either: Adapter, sources: Callable[..., DataFrame], tmp_path: Path
) -> None:
    run(either(sources("alpha", "beta"), TABLE, **OPTIONS))
    write_files(tmp_path / "alpha", 1, first=2)
    run(either(sources("beta", "alpha"), TABLE, **OPTIONS))
    run(either(sources("gamma", "beta", "alpha"), TABLE, **OPTIONS))
    write_files(tmp_path / "alpha", 1, first=3)
    run(either(sources("alpha", "gamma"), TABLE, **OPTIONS))
    assert _in_table() == _numbers(0, 1, 2, 3, 10, 11, 20, 21)
    _check_proof()


def test_a_replay_is_recognised_although_the_sources_changed_places(
    either: Adapter, sources: Callable[..., DataFrame], home: Path
) -> None:
    run(either(sources("alpha", "beta"), TABLE, **OPTIONS))
    files = sorted(home.rglob("*.parquet"))
    forget_commits(Path("ck"), 0)
    run(either(sources("beta", "alpha"), TABLE, **OPTIONS))
    assert sorted(home.rglob("*.parquet")) == files
    assert _in_table() == _numbers(0, 1, 10, 11)
    _check_proof()


def test_what_was_prepared_before_a_crash_is_committed_although_the_sources_changed_places(
    either: Adapter, sources: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@1=raise")
    assert "FailpointReached" in failure(either(sources("alpha", "beta"), TABLE, **OPTIONS))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    run(either(sources("beta", "alpha"), TABLE, **OPTIONS))
    assert [(each.batch_id, each.outcome) for each in lakesink.history(TABLE)] == [(0, "committed"), (1, "recovered")]
    assert _in_table() == _numbers(0, 1, 10, 11)
    _check_proof()


def test_after_a_rollback_and_a_rewind_every_row_is_there_once(
    either: Adapter, sources: Callable[..., DataFrame]
) -> None:
    run(either(sources("alpha", "beta"), TABLE, **OPTIONS))
    table = _table()
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshot_log[0].snapshot_id).commit()
    forget_commits(Path("ck"), 0)
    place = RewindableCheckpoint(str(Path("ck").absolute()))
    place.rewind(place.plan(0))
    run(either(sources("beta", "alpha", "gamma"), TABLE, **OPTIONS))
    assert _in_table() == _numbers(0, 1, 10, 11, 20, 21)
    _check_proof()


def test_a_source_that_comes_back_later_is_refused_and_no_row_comes_twice(
    either: Adapter, sources: Callable[..., DataFrame], tmp_path: Path
) -> None:
    run(either(sources("alpha", "beta"), TABLE, **OPTIONS))
    for number in (2, 3):
        write_files(tmp_path / "alpha", 1, first=number)
        run(either(sources("alpha"), TABLE, **OPTIONS))
    write_files(tmp_path / "beta", 1, first=12)
    text = failure(either(sources("alpha", "beta"), TABLE, **OPTIONS))
    assert "[LAKESINK_SOURCE_CAME_BACK]" in text
    assert _in_table() == _numbers(0, 1, 2, 3, 10, 11)
    place = RewindableCheckpoint(str(Path("ck").absolute()))
    place.rewind(place.plan(3))  # as the message says
    write_files(tmp_path / "alpha", 1, first=4)
    run(either(sources("alpha"), TABLE, **OPTIONS))
    assert _in_table() == _numbers(0, 1, 2, 3, 4, 10, 11)
    _check_proof()


def test_a_planned_batch_whose_source_was_removed_is_refused(
    sources: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "batch-start@1=raise")
    assert "FailpointReached" in failure(lakesink.stream(sources("alpha", "beta"), TABLE, **OPTIONS))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    assert "[LAKESINK_SOURCE_REMOVED]" in failure(lakesink.stream(sources("alpha"), TABLE, **OPTIONS))
    assert _in_table() == _numbers(0, 10)
    run(lakesink.stream(sources("alpha", "beta"), TABLE, **OPTIONS))
    assert _in_table() == _numbers(0, 1, 10, 11)
    run(lakesink.stream(sources("alpha"), TABLE, **OPTIONS))
    _check_proof()


def test_a_checkpoint_without_names_goes_on_without_them(spark: Any, either: Adapter, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "false")
    write_files(tmp_path / "in", 2)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "1")
    run(either(rows, TABLE, **OPTIONS))
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    write_files(tmp_path / "in", 1, first=2)
    forget_commits(Path("ck"), 0)
    run(either(rows, TABLE, **OPTIONS))
    assert _in_table() == _numbers(0, 1, 2)
    assert (Path("ck") / "offsets" / "2").read_text().startswith("v1")
    _check_proof()


def test_rows_of_a_named_sink_are_there_once_beside_commit_logs_of_version_3(
    spark: Any, sources: Callable[..., DataFrame]
) -> None:
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSinkEvolution", "true")
    try:
        for replayed_above in (0, 1):
            stream = lakesink.stream(sources("alpha"), TABLE, **OPTIONS)
            stream._jwrite.name("lake")  # noqa: SLF001 - PySpark does not have it yet
            run(stream)
            forget_commits(Path("ck"), replayed_above)
    finally:
        spark.conf.unset("spark.sql.streaming.queryEvolution.enableSinkEvolution")
    assert (Path("ck") / "commits" / "0").read_text().startswith("v3")
    assert _in_table() == _numbers(0, 1)
    _check_proof()
