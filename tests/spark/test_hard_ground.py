"""A counting source after a new checkpoint, a rollback beside a running stream, very wide rows."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_tools.cli.main import main
from tests.spark.adapters import Adapter
from tests.spark.streams import counter_stream, file_stream, run, run_batches, write_files
from tests.spark.wide_rows_driver import MIDDLE, SLIM, WIDEST

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.events"
OPTIONS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "create_table": True}
WIDE_BYTES = 4 * 1024 * 1024


def _table() -> Any:
    return load_table(connect(create=False), TABLE)


def _in_table() -> list[int]:
    return sorted(_table().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def _is_whole(found: list[int]) -> bool:
    return found == list(range(len(found)))


@pytest.mark.parametrize(
    ("source", "either"),
    [
        ("rate", "stream"),
        ("rate-micro-batch", "stream"),
        ("rate-micro-batch", "format"),
        pytest.param("rate", "format", marks=pytest.mark.nightly),
    ],
    indirect=["either"],
)
def test_a_counter_on_a_new_checkpoint_is_refused_and_goes_on_with_the_old_one(
    spark: Any, either: Adapter, source: str
) -> None:
    def stream() -> Any:
        rows = counter_stream(spark)
        if source == "rate":
            rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load().selectExpr("value as id")
        return either(rows, TABLE, **OPTIONS)

    run_batches(stream(), 2)
    before = _in_table()
    assert before
    assert _is_whole(before)
    Path("ck").rename("lost")
    assert "[LAKESINK_NEW_CHECKPOINT]" in _failure_of_endless(stream())
    assert _in_table() == before
    shutil.rmtree("ck")
    Path("lost").rename("ck")
    run_batches(stream(), 4)
    assert len(_in_table()) > len(before)
    assert _is_whole(_in_table())


def _failure_of_endless(stream: Any) -> str:
    query = stream.trigger(processingTime="0 seconds").start()
    try:
        query.awaitTermination(120)
    except StreamingQueryException as error:
        return str(error)
    query.stop()
    raise AssertionError("the stream did not fail")


@pytest.mark.dear
def test_a_rollback_beside_a_running_stream_ends_it_and_its_advice_brings_every_row_once(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "in"
    write_files(source, 3)
    connect()  # the catalog is made before the stream and this test look at it at once

    def stream() -> Any:
        return lakesink.stream(file_stream(spark, source), TABLE, **OPTIONS)

    query = stream().trigger(processingTime="0 seconds").start()
    while len(lakesink.history(TABLE) if _has_table() else ()) < 3:
        assert query.isActive, query.exception()
        time.sleep(0.1)
    first = next(record for record in lakesink.history(TABLE) if record.batch_id == 0)
    _table().manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    write_files(source, 2, first=3)
    with pytest.raises(StreamingQueryException) as ended:
        query.awaitTermination(120)
    assert "[LAKESINK_ROLLED_BACK]" in str(ended.value)
    assert _in_table() == list(range(10))
    command = re.search(r"`lakesink (rewind \S+ --to-batch \d+)`", caplog.text)
    assert command is not None, caplog.text
    rewound = CliRunner().invoke(main, [*command[1].split(), "--yes"])
    assert rewound.exit_code == 0, rewound.output
    run(stream())
    assert _in_table() == list(range(50))


def _has_table() -> bool:
    try:
        _table()
    except Exception:  # noqa: BLE001 - the stream is just making it
        return False
    return True


def test_rows_of_megabytes_are_all_there_and_whole(spark: Any, tmp_path: Path, either: Adapter) -> None:
    write_files(tmp_path / "in", 2, rows=12)
    rows = file_stream(spark, tmp_path / "in").selectExpr("id", f"repeat(chr(97 + id % 26), {WIDE_BYTES}) as text")
    run(either(rows, TABLE, **OPTIONS))
    found = _table().scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(24))
    for number, text in zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True):
        assert text == chr(97 + number % 26) * WIDE_BYTES


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What the driver with a small heap says of its tables."""
    folder = tmp_path_factory.mktemp("wide")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.wide_rows_driver", str(folder)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"LAKESINK_HOME": str(folder / "home")},
    )
    told: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.driver
@pytest.mark.dear
@pytest.mark.parametrize(
    ("part", "rows", "characters"),
    [
        ("few of the widest rows", 24, 24 * WIDEST),
        ("more rows than the first message may have", 1_100, 1_100 * MIDDLE),
        ("a stream of wide rows after narrow ones", 22_600, 20_000 + 2_600 * SLIM),
    ],
)
def test_rows_of_which_a_message_would_fill_the_heap_are_all_there_and_whole(
    wide: dict[str, list[int]], part: str, rows: int, characters: int
) -> None:
    assert wide[part] == [rows, rows, characters, 0]
