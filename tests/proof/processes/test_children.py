"""Drivers without Spark are real drivers: what dies anywhere is made good by the next, and the oracle sees the rest."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lakesink.rows.letters import SUFFIX
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.failpoints import FAILPOINTS
from proof.content import CHANGELOG, KEYED_DOCUMENTS, ROWS_OF_UPSERTED
from proof.keyed_table import SIZED, make_keyed_table
from proof.oracle import Broken, Promise
from proof.processes.checkpoint import ConcurrentStreamLogUpdate, DiskCheckpoint, NumberedRows
from proof.processes.evidence import Reader, judge, local, orphans, stored
from proof.processes.harness import Stream


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def promises(broken: list[Broken]) -> set[Promise]:
    return {one.promise for one in broken}


def test_one_driver_killed_at_every_point_after_another_leaves_every_row_once(tmp_path: Path) -> None:
    points = [name for name, point in FAILPOINTS.items() if not point.needs]
    stream = Stream(tmp_path, batches=len(points))
    with Reader(stream).reading() as reader:
        for batch, name in enumerate(points):
            assert stream.run(f"{name}@{batch}=kill").process.exitcode == -9
        assert stream.run().code is None
    assert judge(stream, Counter(), reader) == []
    assert reader.failures == []
    assert orphans(stream) == 3  # one task's open file, and two closed ones that nobody knew to be prepared


@pytest.mark.parametrize("point", ["while-writing", "before-call"])  # to the first of them come two tasks
@pytest.mark.soak
def test_a_second_driver_stops_the_first_as_spark_would(stream: Stream, point: str) -> None:
    with stream.driver(f"{point}@1=stop") as first:
        assert first.wait_until_stopped()
        assert stream.run().code is None
        assert first.go_on() == 3
        assert first.code == "ConcurrentStreamLogUpdate"
    assert judge(stream, Counter()) == []


def test_rows_that_are_missing_doubled_or_others_are_seen(stream: Stream) -> None:
    assert stream.run().code is None
    assert promises(judge(replace(stream, batches=4), Counter())) == {Promise.NO_ROW_IS_LOST}
    assert promises(judge(stream, Counter([(-1, 0)]))) == {Promise.NO_ROW_IS_LOST}
    assert promises(judge(replace(stream, batches=2), Counter())) == {Promise.NO_ROW_IS_INVENTED}
    twin = replace(stream, sink_id="twin", root=stream.root / "twin", catalog=stream.properties)
    assert twin.run().code is None
    assert promises(judge(stream, Counter())) == {Promise.NO_ROW_IS_DOUBLED}


@pytest.mark.soak
def test_a_change_that_is_told_nowhere_or_twice_and_a_replay_that_did_not_come_are_seen(stream: Stream) -> None:
    stream = replace(stream, content=KEYED_DOCUMENTS, rows=ROWS_OF_UPSERTED, options={})
    catalog = connect("lake", stream.properties)
    (stream.root / "warehouse").mkdir()
    make_keyed_table(catalog, stream.table, {}, SIZED)
    assert stream.run().code is None
    assert judge(stream, Counter()) == []
    assert Promise.EACH_CHANGE_IS_TOLD in promises(judge(replace(stream, replays=True), Counter()))
    log = catalog.load_table(CHANGELOG)
    log.append(log.scan(limit=1).to_arrow())
    assert promises(judge(stream, Counter())) == {Promise.EACH_CHANGE_IS_TOLD}
    catalog.drop_table(f"{stream.table}{SUFFIX}")
    assert [broken.what.partition(":")[0] for broken in judge(stream, Counter())] == ["dead letters", "changelog"]


def test_a_file_that_was_overwritten_or_deleted_is_seen(stream: Stream) -> None:
    reader = Reader(stream)
    assert stream.run().code is None
    reader.look()
    first, second, *_ = sorted(reader.files)
    local(first).write_bytes(local(first).read_bytes())
    assert promises(judge(stream, Counter(), reader)) == {Promise.NOTHING_REFERENCED_IS_TOUCHED}
    replaced = local(second).with_suffix(".away")
    local(second).rename(replaced)
    assert stored(second) is None
    assert set(reader.touched()) == {first, second}


def test_the_command_line_runs_a_driver_and_imports_what_it_is_told(stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "mutant_of_the_test.py").write_text("print('imported')\n")
    orders = json.dumps(asdict(stream.orders))
    (stream.root / "warehouse").mkdir()
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    command = [sys.executable, "-m", "proof.processes.child", orders, "--with", "mutant_of_the_test"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path})
    first, *reports = done.stdout.splitlines()
    assert first == "imported"
    assert [json.loads(line)["event"] for line in reports] == ["batch", "batch", "batch", "ended"]
    assert judge(stream, Counter()) == []


def test_a_checkpoint_replays_what_is_not_committed_and_fences_its_logs(tmp_path: Path) -> None:
    checkpoint = DiskCheckpoint(tmp_path, NumberedRows(batches=2, rows=1))
    query = checkpoint.begin()
    assert next(checkpoint.planned()) == 0
    again: Iterator[int] = DiskCheckpoint(tmp_path, checkpoint.source).planned()
    assert next(again) == 0
    checkpoint.commit(0)
    with pytest.raises(ConcurrentStreamLogUpdate):
        checkpoint.commit(0)
    assert next(again) == 1
    assert list(checkpoint.planned()) == [1]
    assert checkpoint.begin() == query
