"""Debezium's events through a real broker: driver and broker are killed, and the table is DuckDB's answer."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakesink.rows.plan import DELETED
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from servers.kafka import KafkaBroker, kafka_broker
from testkit.harness import PATIENCE_SECONDS
from tests.interop.change_topic import (
    BY_OFFSET,
    BY_SEQUENCE,
    CDC,
    COLUMNS,
    PARTITIONS,
    ROWS,
    TABLE,
    TOPIC,
    ChangedOrders,
    Follower,
    answer,
)

pytestmark = pytest.mark.interop
OVERLAPPING = Path(__file__).with_name("overlap_driver.py")
VICTIMS = ("driver", "driver", "broker")


@pytest.mark.parametrize(
    ("program", "order", "overlap"),
    [
        pytest.param(CDC / "stream.py", BY_OFFSET, False, id="the-example", marks=pytest.mark.nightly),
        pytest.param(OVERLAPPING, BY_SEQUENCE, True, id="load-and-stream-overlap"),
    ],
)
def test_a_table_equals_its_database_though_driver_and_broker_were_killed(
    program: Path,
    order: str,
    overlap: bool,  # noqa: FBT001 - pytest's
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = int(os.environ.get("LAKESINK_SEED", random.SystemRandom().randrange(2**32)))
    print(f"LAKESINK_SEED={seed}")
    chance = random.Random(seed)
    monkeypatch.setenv("LAKESINK_HOME", str(tmp_path / "home"))
    columns = COLUMNS.append(pa.field(DELETED, pa.bool_())) if overlap else COLUMNS
    create_table(connect(), TABLE, columns, partition_by="region", keys=["order_id"])
    (tmp_path / "kafka").mkdir()
    with kafka_broker(tmp_path / "kafka") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        follower = Follower(tmp_path, program, broker.bootstrap)
        source = ChangedOrders(broker.bootstrap, random.Random(seed), overlap=overlap)
        with source.changing():
            for victim in chance.sample(VICTIMS, len(VICTIMS)):
                strike(victim, follower, broker, chance)
        follower.run()
        expected = answer(broker.bootstrap, order)
    assert len(expected) > ROWS / 2
    assert expected == source.rows()
    assert follower.rows() == expected
    assert_audited(follower)


def strike(victim: str, follower: Follower, broker: KafkaBroker, chance: random.Random) -> None:
    """Kill a driver at work; or the broker under a driver, which may fail by that."""
    if victim == "driver":
        follower.kill_at_work(chance)
        return
    with follower.driver() as driver:
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(chance.uniform(0, 8))
        broker.kill()
        broker.start()
        driver.wait(PATIENCE_SECONDS)


def assert_audited(follower: Follower) -> None:
    program = Path(sys.executable).with_name("lakesink")
    told = subprocess.run(
        [program, "audit", TABLE, "--keys", "--checkpoint", str(follower.checkpoint)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "one row each" in told.stdout
