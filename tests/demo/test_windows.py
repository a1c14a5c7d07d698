"""The windows of the example: what the watermark drops is counted; batches without rows, or without input, land."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyspark.errors import StreamingQueryException

import lakesink
from examples.kafka_windows.departures import CLOSING, Departure, departures, transactions
from examples.kafka_windows.queries import CATALOG, DEPARTURES, WATERMARK_DELAY, count_departures, from_files
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.failpoints import VARIABLE
from lakesink_catalog.tables.tables import load_table
from lakesink_tools.demo import flights

START = datetime(2013, 1, 1, tzinfo=UTC)
LATE = f"""
WITH hours AS (SELECT *, epoch_us("at") // 3600000000 AS hour FROM events),
files AS (SELECT file, max("at") AS newest FROM events GROUP BY file),
marks AS (
    SELECT file, max(newest) OVER before_last - INTERVAL '{WATERMARK_DELAY}' AS watermark FROM files
    WINDOW before_last AS (ORDER BY file ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)
)
SELECT hours.*, coalesce((hour + 1) * 3600000000 <= epoch_us(watermark), false) AS late
FROM hours JOIN marks USING (file)
"""


@pytest.fixture(autouse=True)
def _utc(spark: Any, home: Path) -> Iterator[None]:  # noqa: ARG001 - where the embedded catalog is
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def arrive(inbox: Path, events: Sequence[Departure]) -> None:
    inbox.mkdir(exist_ok=True)
    number = len(list(inbox.iterdir()))
    path = inbox / f"{number}.json"
    path.write_bytes(b"".join(event.document + b"\n" for event in events))
    os.utime(path, (START.timestamp() + number,) * 2)


def run(spark: Any, folder: Path) -> list[Any]:
    """Run the query until there is nothing left for it to do; its progress, batch by batch."""
    query = count_departures(from_files(spark, folder / "inbox", 1), folder / "checkpoints")
    try:
        query.processAllAvailable()
        return list(query.recentProgress)
    finally:
        query.stop()


def windows() -> list[tuple[int, str, int]]:
    rows = load_table(connect(CATALOG, create=False), DEPARTURES).scan().to_arrow().to_pylist()
    return sorted((int(row["hour"].timestamp()) // 3600, row["origin"], row["departures"]) for row in rows)


def days_with_late_events(seed: int) -> list[list[Departure]]:
    """A file for every second day; some of its events come up to twelve days late, more than the delay."""
    chance = Random(seed)
    days: list[list[Departure]] = []
    for day in range(0, 12, 2):
        late = [timedelta(days=12 * chance.random()) if chance.random() < 0.3 else timedelta() for _ in range(150)]
        at = [START + timedelta(days=day, seconds=chance.randrange(172_800)) - behind for behind in late]
        days.append([Departure(0, moment, origin=chance.choice(["EWR", "JFK"]), delay=1) for moment in at])
    return days


@pytest.mark.soak
def test_the_producer_sends_nothing_too_late_though_a_partition_be_a_transaction_behind(tmp_path: Path) -> None:
    sent = departures(flights.unpack(tmp_path), days=60)
    delay = timedelta(days=int(WATERMARK_DELAY.removesuffix(" days")))
    times = [sorted(event.departed_at for event in part.events) for part in transactions(sent, seed=1)]
    assert max(part[-1] - part[0] for part in times) + timedelta(hours=6) < delay
    assert len(times) > 30


@pytest.mark.dear
def test_what_the_watermark_drops_is_what_duckdb_finds_too_late(spark: Any, tmp_path: Path) -> None:
    files = [*days_with_late_events(seed=5), [Departure(-1, CLOSING)]]
    for events in files:
        arrive(tmp_path / "inbox", events)
    progress = run(spark, tmp_path)

    told = [(file, event.departed_at, event.origin) for file, events in enumerate(files) for event in events]
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE events (file INTEGER, "at" TIMESTAMPTZ, origin TEXT)')
        connection.executemany("INSERT INTO events VALUES (?, ?, ?)", told)
        connection.execute(f"CREATE TABLE judged AS {LATE}")
        wanted = (
            "SELECT hour, origin, count(*) FROM judged WHERE NOT late AND origin IS NOT NULL GROUP BY ALL ORDER BY ALL"
        )
        expected = connection.execute(wanted).fetchall()
        [(late,)] = connection.execute("SELECT count(*) FROM judged WHERE late").fetchall()
        groups = "SELECT file, count(DISTINCT (hour, origin)) FROM judged WHERE late GROUP BY file ORDER BY file"
        dropped = connection.execute(groups).fetchall()

    assert windows() == expected
    assert late == len(told) - 1 - sum(departures for _, _, departures in expected) > 20
    by_spark = [
        (batch.batchId, sum(state.numRowsDroppedByWatermark for state in batch.stateOperators)) for batch in progress
    ]
    assert [(batch_id, count) for batch_id, count in by_spark if count] == dropped, "Spark counts groups, after summing"


@pytest.mark.parametrize("crashed", [1, 3], ids=["nothing to write", "windows to write"])
@pytest.mark.soak
def test_a_batch_that_only_moves_the_watermark_lands_once_wherever_its_driver_dies(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashed: int
) -> None:
    departed = [Departure(0, START + timedelta(minutes=minute), origin="EWR", delay=1) for minute in range(90)]
    for first, events in ((0, departed), (2, [Departure(-1, CLOSING)])):
        arrive(tmp_path / "inbox", events)
        for place in ("before-prepared", "after-prepared", "after-commit") if crashed == first + 1 else ():
            monkeypatch.setenv(VARIABLE, f"{place}@{crashed}=raise")
            with pytest.raises(StreamingQueryException, match=place):
                run(spark, tmp_path)
        monkeypatch.delenv(VARIABLE, raising=False)
        run(spark, tmp_path)

    logged = tmp_path / "checkpoints" / "departures_by_hour" / "offsets"
    ends = [(logged / str(number)).read_text().splitlines()[-1] for number in range(4)]
    assert (ends[1], ends[3]) == (ends[0], ends[2]), "batches 1 and 3 had no input"
    hour = int(START.timestamp()) // 3600
    assert windows() == [(hour, "EWR", 60), (hour + 1, "EWR", 30)]
    landed = lakesink.history(DEPARTURES, catalog=CATALOG)
    assert [(batch.batch_id, batch.rows) for batch in landed] == [(0, 0), (1, 0), (2, 0), (3, 2)]
    assert [batch.batch_id for batch in landed if batch.outcome == "recovered"] == [crashed]
