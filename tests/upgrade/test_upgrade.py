"""What an older lakesink wrote is gone on with, batch by batch, whatever has changed since."""

import json
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from lakesink.sinks.directory.marker import MARKER_VERSION
from lakesink_catalog.commit.record import RECORD_VERSION
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import sinks
from lakesink_protocol.ledger import LEDGER_VERSION
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_tools.past.records import history
from testkit.builders import expected
from testkit.directory import Stream
from testkit.harness import live_files
from tests.upgrade.driver import ENVIRONMENT, SOURCE, TABLE
from tests.upgrade.write import DEATHS, HERE, drive

TABLES, DIRECTORIES = (sorted(HERE.glob(f"{kind}-*.tar.xz")) for kind in ("table", "directory"))
FIRST_RECORD = 4
"""The version of prepared records in the first release."""


@pytest.mark.parametrize(("written", "version"), [(TABLES, LEDGER_VERSION), (DIRECTORIES, MARKER_VERSION)])
def test_every_version_before_this_one_has_left_something(written: Sequence[Path], version: int) -> None:
    left = {tuple(map(int, re.findall(r"-(\d+)", path.name))) for path in written}
    assert {ledger for ledger, _ in left} == set(range(1, version + 1))
    assert {record for _, record in left} >= set(range(FIRST_RECORD, RECORD_VERSION))


def unpacked(written: Path, folder: Path) -> Path:
    with tarfile.open(written) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("written", DIRECTORIES, ids=lambda path: path.name)
def test_a_directory_of_an_older_version_is_read_and_gone_on_with(written: Path, tmp_path: Path) -> None:
    stream = Stream(unpacked(written, tmp_path) / "out")
    assert stream.counted() == expected(0, 1, 2)
    assert stream.run(2) == AlreadyCommitted(2)
    [record] = (stream.root / "prepared").glob("3-*.json")
    [payload] = json.loads(record.read_text().partition("\n")[2])["participants"].values()  # its name is the old place
    sink = stream.sink()
    begun = sink.begin(stream.batch(3))
    assert not isinstance(begun, AlreadyCommitted)
    prepared = sink.recover(begun, payload)
    assert prepared is not None
    outcome = sink.commit(begun, prepared)
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert isinstance(stream.run(4), Committed)
    assert stream.counted() == expected(0, 1, 2, 4) + expected(3, rows=6)


@pytest.mark.driver
@pytest.mark.parametrize("written", TABLES, ids=lambda path: path.name)
def test_a_table_and_checkpoints_of_an_older_version_are_gone_on_with(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked(written, tmp_path)
    done = drive(tmp_path, *DEATHS)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.chdir(tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    table = connect("lake").load_table(TABLE)
    assert [(state.sink, state.batch_id, state.trouble) for state in sinks(table)] == [
        (sink, 3, None) for sink in DEATHS
    ]
    outcomes = {sink: [record.outcome for record in history(table, sink=sink)] for sink in DEATHS}
    assert outcomes == {
        "committed": ["committed"] * 4,
        "prepared": ["committed", "committed", "recovered", "committed"],
    }
    assert "already-committed table=demo.numbers sink=committed batch=2" in done.stdout
    head = table.current_snapshot()
    assert head is not None
    rows = duckdb.execute("select sink, value from read_parquet(?)", [live_files(table, head.snapshot_id)]).fetchall()
    assert Counter(rows) == Counter((sink, value) for sink in DEATHS for value in range(4 * SOURCE["rowsPerBatch"]))
