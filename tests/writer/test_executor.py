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

from tests.writer.builders import plan_for, spec_of

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


def report_of(folder: Path, rows: int, *transforms: str, **overrides: Any) -> dict[str, Any]:
    plan = plan_for(SCHEMA, folder / "data", spec_of(*transforms, source_ids=(1, 2)), **overrides)
    (folder / "plan").write_bytes(pickle.dumps(plan))
    store_rows(folder / "rows", rows)
    command = [sys.executable, "-m", "tests.writer.executor", str(folder / "plan"), str(folder / "rows")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("transforms", [(), ("bucket[10]", "truncate[99]")])
def test_a_task_starts_no_thread_and_imports_nothing_heavy(transforms: tuple[str, ...], tmp_path: Path) -> None:
    report = report_of(tmp_path, 50_000, *transforms, object_storage=bool(transforms))
    assert report["rows"] == 50_000
    assert (report["threads"], report["modules"]) == (0, [])


@pytest.mark.nightly
def test_ten_thousand_partitions_fit_in_half_a_gibibyte(tmp_path: Path) -> None:
    report = report_of(tmp_path, 1_300_000, "bucket[10000]")
    assert report["partitions"] == 10_000
    assert report["grown"] < 512 * MIB
