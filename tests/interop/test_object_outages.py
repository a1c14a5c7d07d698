"""A store that refuses the key, is gone, hangs, or has no such bucket, at every step of a batch, is told by name.

Nothing is lost or doubled by it. Without Spark, so that every case is tried; `test_object_store` has real drivers.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import CommitTableResponse

from lakesink.task.task import ParquetTaskWriter
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.outcome import Committed
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from lakesink_tools.audit.audit import audit
from servers.s3 import S3, s3
from testkit.builders import Apply, FaultyCatalog, Lake, Stream, expected
from testkit.tasks import writer_of

pytestmark = pytest.mark.interop
LONGEST_SECONDS = 120
Outage = Callable[[S3], Callable[[], None]]
"""Begins, and returns how it ends."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def folder(server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of one test, with a bucket of the same name and a table in it that has batch 0."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.make_bucket(tmp_path.name[:60].replace("_", "-"))
    lake = Lake(tmp_path, catalog(server, tmp_path))
    lake.catalog.create_namespace("demo")
    lake.create(properties={"commit.retry.num-retries": "2"})
    Stream(lake).run(0)
    return tmp_path


def bucket_of(folder: Path) -> str:
    return folder.name[:60].replace("_", "-")


def catalog(server: S3, folder: Path) -> FaultyCatalog:
    warehouse = f"s3://{bucket_of(folder)}/warehouse"
    return FaultyCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=warehouse, **server.properties)


def rejects(server: S3) -> Callable[[], None]:
    """The key is changed at the store, and later where drivers find theirs."""
    old, server.secret_key = server.secret_key, f"{server.secret_key}-2"
    server.kill()
    server.start()

    def is_mended() -> None:
        server.secret_key = old
        server.kill()
        server.start()

    return is_mended


def dies(server: S3) -> Callable[[], None]:
    server.kill()
    return server.start


def hangs(server: S3) -> Callable[[], None]:
    server.pause()
    return server.resume


def loses_its_buckets(server: S3) -> Callable[[], None]:
    there, away = server.folder / "buckets", server.folder / "away"
    away.mkdir()
    moved = [bucket.rename(away / bucket.name) for bucket in there.iterdir()]

    def are_back() -> None:
        for bucket in moved:
            bucket.rename(there / bucket.name)
        away.rmdir()

    return are_back


REASONS: Mapping[Outage, tuple[str, str, str]] = {
    rejects: ("STORAGE_REJECTED", "STORAGE_REJECTED", "AWS Error "),
    dies: ("STORAGE_UNREACHABLE", "STORAGE_UNREACHABLE", "AWS Error NETWORK_CONNECTION"),
    hangs: ("STORAGE_UNREACHABLE", "STORAGE_UNREACHABLE", "AWS Error NETWORK_CONNECTION"),
    loses_its_buckets: ("WAREHOUSE_UNWRITABLE", "STORAGE_WRITE", ""),
}
"""Code when the driver meets it, code when an executor does, and what the first line tells."""

STEPS = ("load", "write", "upload", "prepare", "commit")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("outage", REASONS)
def test_an_outage_is_said_by_name_and_the_next_driver_goes_on(
    server: S3, folder: Path, outage: Outage, step: str
) -> None:
    lake = Lake(folder, catalog(server, folder))
    stream = Stream(lake)
    ends: list[Callable[[], None]] = []
    begun = time.monotonic()

    def begins_at(now: str) -> None:
        if now == step and not ends:
            ends.append(outage(server))

    def rows() -> Iterator[pa.RecordBatch]:
        yield from stream.rows(1, range(2))
        begins_at("upload")
        yield from stream.rows(1, range(2, 3))

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        begins_at("write")
        [(name, writer)] = writers.items()
        assert isinstance(writer, ParquetTaskWriter)
        at_once = writer_of(replace(writer.plan, buffer_bytes=1))  # a file is open after the first rows
        votes = Votes.in_order({name: [at_once.write(0, rows())]})
        begins_at("prepare")
        return votes

    def fault(apply: Apply) -> CommitTableResponse:
        begins_at("commit")
        return apply()

    lake.catalog.faults = [fault]
    begins_at("load")
    try:
        with pytest.raises(LakesinkError) as refused:
            stream.run_with(stream.sink(), 1, job=job)
        assert time.monotonic() - begun < LONGEST_SECONDS
    finally:
        ends[0]()

    by_driver, by_executor, reason = REASONS[outage]
    said = str(refused.value) if step == "commit" else refused.value.what
    assert reason in said
    if step == "commit":
        assert refused.value.code == "LAKESINK_COMMIT_UNRESOLVED"
        assert by_driver in said
    else:
        assert refused.value.code == f"LAKESINK_{by_executor if step in ('write', 'upload') else by_driver}"
    assert server.secret_key not in str(refused.value)
    assert server.access_key not in str(refused.value)
    after = Stream(Lake(folder, catalog(server, folder)))
    outcome = after.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.recovered is (step == "commit")
    assert counted(server, after) == expected(0, 1)
    assert audit(after.lake.table()).findings == ()


def counted(server: S3, stream: Stream) -> Counter[tuple[int, int]]:
    paths = [task.file.file_path.removeprefix("s3://") for task in stream.lake.table().scan().plan_files()]
    files = [str(server.folder / "buckets" / path) for path in paths]
    return Counter(duckdb.read_parquet(files).project("batch, position").fetchall())
