"""A query that keeps state goes on after a batch that came again: its state follows, though no row is written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink.spark.rows.arrow_limits import MAX_RECORDS
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.failpoints import VARIABLE
from lakesink_catalog.tables.tables import load_table
from tests.spark.adapters import Adapter
from tests.spark.streams import failure, file_stream, run, write_files

TABLE = "demo.events"
ROWS = 3_000
ROWS_AT_ONCE = "500"  # with their texts, more than a socket holds: rows that nobody asks for are not read
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def _small_hops(spark: Any) -> Iterator[None]:
    spark.conf.set(MAX_RECORDS, ROWS_AT_ONCE)
    yield
    spark.conf.unset(MAX_RECORDS)


def distinct_ids(spark: Any, into: Adapter, folder: Path, wanted: str = f"id % {3 * ROWS}") -> Any:
    """A query that lets each id pass once: what it has seen is its state."""
    rows = file_stream(spark, folder / "in").selectExpr(f"{wanted} as id", "repeat(text, 1000) as text")
    options = {"sink_id": "distinct", "checkpoint": folder / "checkpoint", "create_table": True}
    return into(rows.dropDuplicates(["id"]), TABLE, **options)


def ids() -> list[int]:
    found: list[int] = load_table(connect(create=False), TABLE).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize(
    ("either", "place"),
    [
        ("stream", "after-prepared"),
        ("stream", "after-commit"),
        pytest.param("format", "after-commit", marks=pytest.mark.nightly),
    ],
    indirect=["either"],
)
@pytest.mark.dear
def test_what_a_query_has_seen_in_a_batch_that_came_again_is_known_to_the_next_one(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, either: Adapter, place: str
) -> None:
    write_files(tmp_path / "in", 4, rows=ROWS)
    monkeypatch.setenv(VARIABLE, f"{place}@1=raise")
    assert "FailpointReached" in failure(distinct_ids(spark, either, tmp_path))
    monkeypatch.delenv(VARIABLE)
    for state in (tmp_path / "checkpoint" / "state").rglob("2.delta"):
        state.unlink()  # as of a checkpoint from a backup, or a machine that lost what it had not yet written
    run(distinct_ids(spark, either, tmp_path))
    assert ids() == list(range(3 * ROWS))


def test_a_batch_that_cannot_be_read_for_its_states_sake_ends_the_query_by_name_and_is_read_by_the_next_start(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "in", 2, rows=10)
    monkeypatch.setenv(VARIABLE, "after-commit@1=raise")
    assert "FailpointReached" in failure(distinct_ids(spark, lakesink.stream, tmp_path))
    monkeypatch.delenv(VARIABLE)
    told = failure(distinct_ids(spark, lakesink.stream, tmp_path, "cast(raise_error('spoilt') as bigint)"))
    assert "[LAKESINK_STATE_BEHIND] The batch is committed" in told
    run(distinct_ids(spark, lakesink.stream, tmp_path))
    assert ids() == list(range(20))
