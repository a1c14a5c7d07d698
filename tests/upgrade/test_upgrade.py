"""A table and checkpoints that an older lakesink wrote are gone on with, batch by batch, whatever has changed since."""

import re
import tarfile
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from lakesink_catalog.commit.record import RECORD_VERSION
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import sinks
from lakesink_protocol.ledger import LEDGER_VERSION
from lakesink_tools.audit.records import history
from testkit.harness import live_files
from tests.upgrade.driver import ENVIRONMENT, SOURCE, TABLE
from tests.upgrade.write import DEATHS, HERE, drive

WRITTEN = {path.name.removesuffix(".tar.xz"): path for path in HERE.glob("*.tar.xz")}
OLDEST, *LATER = sorted(WRITTEN)


def test_every_version_before_this_one_has_left_something() -> None:
    left = {tuple(map(int, re.findall(r"-(\d+)", name))) for name in WRITTEN}
    assert {ledger for ledger, _ in left} == set(range(1, LEDGER_VERSION + 1))
    assert {record for _, record in left} >= set(range(1, RECORD_VERSION))


@pytest.mark.driver
@pytest.mark.parametrize("version", [OLDEST, *(pytest.param(version, marks=pytest.mark.nightly) for version in LATER)])
def test_what_an_older_version_wrote_is_gone_on_with(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(WRITTEN[version]) as packed:
        packed.extractall(tmp_path, filter="data")
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
