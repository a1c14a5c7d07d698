"""The sink of files on a real S3: batches once, rivals told apart, and an outage told by name that loses nothing."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

import lakesink
from lakesink.sinks.storage import open_storage
from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from servers.s3 import S3
from tests.files.test_storages import run

pytestmark = pytest.mark.interop
OUT = "s3://lake/out"


def rows(server: S3) -> list[int]:
    files = lakesink.committed_files(OUT, sink_id="clicks")
    found = [pq.read_table(server.folder / "buckets" / file.removeprefix("s3://"))["id"].to_pylist() for file in files]
    return sorted(number for numbers in found for number in numbers)


@pytest.mark.parametrize("failpoint", ["before-prepared", "after-prepared", "after-commit"])
def test_a_batch_that_ended_in_the_middle_is_there_once_after_its_replay(
    server: S3, failpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(OUT, 0)
    monkeypatch.setenv(VARIABLE, f"{failpoint}@1=raise")
    with pytest.raises(FailpointReached):
        run(OUT, 1)
    monkeypatch.delenv(VARIABLE)
    server.kill()
    server.start()
    assert isinstance(run(OUT, 1), AlreadyCommitted if failpoint == "after-commit" else Committed)
    assert rows(server) == list(range(6))


@pytest.mark.usefixtures("server")
def test_of_many_that_create_one_object_one_does() -> None:
    location, contents = f"{OUT}/contended", [f"number {number}".encode() for number in range(12)]

    def create(data: bytes) -> bool:
        try:
            open_storage(OUT).create(location, data)
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(len(contents)) as pool:
        created = list(pool.map(create, contents))
    [winner] = [data for data, did in zip(contents, created, strict=True) if did]
    assert open_storage(OUT).read(location) == winner


def test_a_refused_key_is_told_by_name_and_the_stream_goes_on_once_it_is_mended(
    server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(OUT, 0)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "an-old-one")
    with pytest.raises(CatalogError, match="LAKESINK_DIRECTORY_UNWRITABLE") as refused:
        run(OUT, 1)
    assert "an-old-one" not in str(refused.value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    assert isinstance(run(OUT, 1), Committed)
    assert rows(server) == list(range(6))


def test_a_store_that_is_away_is_told_by_name_and_the_stream_goes_on_once_it_is_back(server: S3) -> None:
    run(OUT, 0)
    server.kill()
    with pytest.raises(CatalogError, match="LAKESINK_DIRECTORY_FAILED"):
        run(OUT, 1)
    server.start()
    assert isinstance(run(OUT, 1), Committed)
    assert rows(server) == list(range(6))
