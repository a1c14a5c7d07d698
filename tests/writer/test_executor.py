"""In a process of its own, as on an executor: bounded memory, no thread that a fork would lose, no heavy import."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField

from lakesink.rows.plan import ChangesPlan, WritePlan
from lakesink_protocol.row_changes import Mode
from testkit.tasks import plan_for, spec_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "body", BinaryType()))
MIB = 1024 * 1024


ROWS_A_BATCH = 10_000


def store_rows(path: Path, rows: int) -> None:
    """Rows ``id``, scattered, and ``body``, a hundred bytes."""
    schema = pa.schema([("id", pa.int64()), ("body", pa.binary())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for start in range(0, rows, ROWS_A_BATCH):
            ids = pa.array([(start + row) * 7_919 % 1_000_003 for row in range(ROWS_A_BATCH)])
            bodies = pa.repeat(pa.scalar(b"%0100d" % start), ROWS_A_BATCH)
            stream.write_batch(pa.RecordBatch.from_arrays([ids, bodies], schema=schema))


def store_changes(path: Path, rows: int) -> None:
    """Rows ``id`` of a thousand keys, ``body`` of a hundred bytes, and ``number``, which grows."""
    schema = pa.schema([("id", pa.int64()), ("body", pa.binary()), ("number", pa.int64())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for start in range(0, rows, ROWS_A_BATCH):
            numbers = range(start, start + ROWS_A_BATCH)
            columns = [[number % 1_000 for number in numbers], [b"%0100d" % number for number in numbers], numbers]
            stream.write_batch(pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=schema))


def report_of(folder: Path, rows: int, *transforms: str, **overrides: Any) -> dict[str, Any]:
    store_rows(folder / "rows", rows)
    return reported(folder, plan_for(SCHEMA, folder / "data", spec_of(*transforms, source_ids=(1, 2)), **overrides))


def reported(folder: Path, plan: WritePlan) -> dict[str, Any]:
    """What the executor reports of the stored rows."""
    (folder / "plan").write_bytes(pickle.dumps(plan))
    command = [sys.executable, "-m", "tests.writer.executor", str(folder / "plan"), str(folder / "rows")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("transforms", [(), ("bucket[10]", "truncate[99]")])
def test_a_task_starts_no_thread_and_imports_nothing_heavy(transforms: tuple[str, ...], tmp_path: Path) -> None:
    report = report_of(tmp_path, 50_000, *transforms, object_storage=bool(transforms))
    assert report["rows"] == 50_000
    assert (report["threads"], report["modules"]) == (0, [])


def test_a_task_of_changes_does_neither_and_its_memory_grows_with_the_keys(tmp_path: Path) -> None:
    """The rows have 1,000 keys and a body of a hundred bytes: 100 MiB of rows, of which 0.1 MiB are the newest."""
    schema = Schema(*SCHEMA.fields, NestedField(3, "number", LongType()))
    store_changes(tmp_path / "rows", 1_000_000)
    plan = plan_for(schema, tmp_path / "data", changes=ChangesPlan(Mode.UPSERT, (1,), (3,)))
    report = reported(tmp_path, plan)
    assert (report["rows"], report["superseded"]) == (1_000_000, 999_000)
    assert (report["threads"], report["modules"]) == (0, [])
    assert report["grown"] < 100 * MIB


@pytest.mark.nightly
def test_ten_thousand_partitions_fit_in_half_a_gibibyte(tmp_path: Path) -> None:
    report = report_of(tmp_path, 1_300_000, "bucket[10000]")
    assert report["partitions"] == 10_000
    assert report["grown"] < 512 * MIB
