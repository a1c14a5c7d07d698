import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakesink
from lakesink.spark.rows.arrow_limits import BATCH_BYTES, MAX_BYTES, MAX_RECORDS, ArrowBatchLimits
from lakesink.spark.rows.batch_rows import FrameRows
from lakesink.spark.rows.job import RowsJob
from lakesink.spark.rows.transport import encode_for_transport
from lakesink_protocol.errors import LakesinkError, WriteError
from tests.spark.directory_sink import LinesWriter


@dataclass(frozen=True)
class Telling:
    """Tells what a task saw: its rows, its columns, the sizes of its batches, or whatever an expression says."""

    tell: str

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        seen = [(batch.num_rows, batch.schema.names, batch.nbytes) for batch in batches]
        facts = {
            "names": lambda: seen[0][1],
            "rows": lambda: [task, sum(rows for rows, _, _ in seen)],
            "largest": lambda: max(rows for rows, _, _ in seen),
            "bytes": lambda: [size for _, _, size in seen],
            "pid": os.getpid,
        }
        return json.dumps(facts[self.tell]()).encode()


def _job(rows: Any) -> RowsJob:
    limits = ArrowBatchLimits(rows.sparkSession.conf, rows.schema.jsonValue())
    return RowsJob(FrameRows(*encode_for_transport(rows)), limits, lambda _: False)


def _told(rows: Any, tell: str) -> list[Any]:
    return [json.loads(receipt) for receipt in _job(rows).write({"it": Telling(tell)}).receipts("it")]


def test_a_writer_whose_class_only_the_driver_knows_travels_whole(spark: Any) -> None:
    """As from a notebook: no executor could import it."""

    class Local:
        def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
            return f"{task}/{sum(batch.num_rows for batch in batches)}".encode()

    rows = spark.range(0, 100, 1, 2)
    assert _job(rows).write({"it": Local()}).receipts("it") == [b"0/50", b"1/50"]


@pytest.mark.parametrize(
    ("query", "tasks"),
    [
        ("select id from range(0, 100, 1, 5)", 5),
        ("select id from range(0, 100, 1, 5) where id < 0", 5),
        ("select id from range(0, 100, 1, 5) limit 0", 0),
        ("select id % 7 as k, count(*) from range(100) group by 1", 1),
        ("select 1 as id where false", 0),
    ],
)
def test_every_planned_task_votes_once(spark: Any, query: str, tasks: int) -> None:
    told = _told(spark.sql(query), "rows")
    assert [task for task, _ in told] == list(range(tasks))
    assert sum(rows for _, rows in told) == spark.sql(query).count()


@pytest.mark.parametrize("names", [["a", "b"], ["a.b", "c`d"], ["a", "A"], ["a", "a"], ["Straße", "列"]])
def test_columns_of_any_name_reach_the_writer_under_it(spark: Any, names: list[str]) -> None:
    rows = spark.range(3).selectExpr("id", "id as other").toDF(*names)
    assert _told(rows.coalesce(1), "names") == [names]


def test_two_writers_of_one_batch_are_refused_with_their_number(spark: Any) -> None:
    with pytest.raises(NotImplementedError, match="one writer a batch, not 2"):
        _job(spark.range(1)).write({"a": Telling("rows"), "b": Telling("rows")})


def test_arrow_batches_of_wide_rows_have_sparks_bound_in_bytes_from_the_first(spark: Any) -> None:
    rows = spark.range(0, 200, 1, 1).selectExpr("repeat('x', 1000000) as text")
    [told] = _told(rows, "bytes")
    assert max(told) <= BATCH_BYTES + 1_000_000
    assert sum(told) >= 200 * 1_000_000


def test_the_byte_check_is_off_for_columns_of_fixed_width_unless_the_user_set_it(spark: Any) -> None:
    rows = spark.range(0, 10_000, 1, 1).selectExpr("id", "id as b", "id as c", "id as d")
    assert _told(rows, "largest") == [10_000]
    spark.conf.unset(MAX_RECORDS)
    spark.conf.set(MAX_BYTES, "65536")
    assert _told(rows, "largest")[0] < 10_000
    assert spark.conf.get(MAX_RECORDS, None) is None


def test_an_error_of_a_task_reaches_the_driver_as_it_was_raised(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(WriteError) as caught:
        _job(spark.range(10)).write({"it": LinesWriter(str(tmp_path), fail_on=7)})
    error = caught.value
    assert (error.code, error.what, error.data, error.action) == (
        "LAKESINK_TEST_VALUE",
        "value 7 is refused",
        "Not in.",
        "Leave it out.",
    )
    assert error.__cause__ is None
    assert error.__suppress_context__


@dataclass(frozen=True)
class Refusing:
    """Refuses the first rows of a task."""

    code: str

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        next(batches)
        raise WriteError(self.code, f"Task {task} refuses.", action="Leave it out.", details=["row 1"])


@pytest.mark.parametrize(("code", "fails"), [("KEY_TWICE", False), ("STORAGE_UNREACHABLE", True)])
def test_an_error_for_rows_fails_no_task_and_comes_back_as_a_vote(spark: Any, code: str, *, fails: bool) -> None:
    """Spark logs a task that fails with its trace, and a cluster runs it four times."""
    spark.sparkContext.setJobGroup(f"refused {code}", "")
    with pytest.raises(WriteError, match=r"Task [01] refuses" if fails else "Task 0 refuses") as caught:
        _job(spark.range(0, 3_000_000, 1, 2)).write({"it": Refusing(code)})
    assert (caught.value.code, caught.value.details) == (f"LAKESINK_{code}", ("row 1",))
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(f"refused {code}")]
    assert any(tracker.getStageInfo(stage).numFailedTasks for job in jobs for stage in job.stageIds) is fails


def test_a_failure_of_the_users_own_query_is_told_in_one_line(spark: Any) -> None:
    spark.udf.register("fails", lambda _: 1 // 0)
    for query, reason in [
        ("select 1 div (id - id) as n from range(2)", "DIVIDE_BY_ZERO"),
        ("select fails(id) as n from range(2)", "ZeroDivisionError"),
        ("select raise_error('token=abcdefghijkl') as n from range(2)", "token=***"),
    ]:
        with pytest.raises(WriteError) as caught:
            _job(spark.sql(query)).write({"it": Telling("rows")})
        assert caught.value.code == "LAKESINK_JOB_FAILED"
        assert reason in str(caught.value).partition("\n")[0]
        assert "abcdefghijkl" not in str(caught.value) + "".join(caught.value.__notes__)


def _python(folder: Path, *site: str) -> str:
    """A virtual environment's Python that finds only what `site` lists, not what lies in the current folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").iterdir()) / "site-packages"
    (packages / "only.pth").write_text("\n".join(site))
    command = folder / "safe-python"
    command.write_text(f'#!/bin/sh\nPYTHONSAFEPATH=1 exec {folder}/bin/python "$@"\n')
    command.chmod(0o755)
    return str(command)


def _linked(folder: Path, *packages: str) -> str:
    """A folder that holds only these of the packages installed here."""
    folder.mkdir()
    installed = [Path(path) for path in sys.path if path.endswith("site-packages")]
    for package in packages:
        found = (found for place in installed if (found := list(place.glob(f"{package}*"))))
        for path in next(found, []):  # not all of them are needed by every PySpark
            (folder / path.name).symlink_to(path)
    return str(folder)


def _other_lakesink(folder: Path) -> str:
    source = Path(lakesink.__file__).parent
    package = folder / "lakesink"
    package.mkdir(parents=True)
    for found in source.iterdir():
        if found.name != "_version.py":
            (package / found.name).symlink_to(found)
    (package / "_version.py").write_text('__version__ = "0.0.1"\n')
    (folder / "lakesink_catalog").symlink_to(source.parent / "catalog" / "lakesink_catalog")
    (folder / "lakesink_protocol").symlink_to(source.parent / "protocol" / "lakesink_protocol")
    return str(folder)


@pytest.fixture(params=["without pyarrow", "without lakesink", "another lakesink", "absent"])
def executor_python(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """An unfit Python for the executors, and what the error must say of it."""
    match request.param:
        case "without pyarrow":
            repository = Path(lakesink.__file__).parent.parent
            return _python(tmp_path / "venv", str(repository), f"{repository}/catalog"), "No module named 'pyarrow'"
        case "without lakesink":
            site = _linked(tmp_path / "site", "pyarrow", "numpy", "pandas", "six", "dateutil", "pytz")
            return _python(tmp_path / "venv", site), "No module named 'lakesink'"
        case "another lakesink":
            site = _linked(
                tmp_path / "site", "pyarrow", "numpy", "pandas", "six", "dateutil", "pytz", "pyspark", "py4j"
            )
            return _python(tmp_path / "venv", _other_lakesink(tmp_path / "other"), site), "0.0.1"
        case _:
            return str(tmp_path / "no-such-python"), "no-such-python"


def test_an_unfit_python_on_an_executor_is_one_clear_error(
    spark: Any, executor_python: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    python, fact = executor_python
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    with pytest.raises(LakesinkError) as caught:
        _job(spark.range(10)).write({"it": Telling("rows")})
    first = str(caught.value).partition("\n")[0]
    assert first.startswith("[LAKESINK_EXECUTOR_PYTHON]")
    assert fact in first
    assert "PYSPARK_PYTHON" in caught.value.action
