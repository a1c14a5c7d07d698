"""The same sink on each kind of storage, and a refusal by name where a storage cannot keep the promise."""

import errno
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakesink
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.sinks.record_folder import PreparedDirectory
from lakesink.sinks.storage import LocalStorage, ObjectStorage, Storage, open_storage, prove_exclusive
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import CatalogError, SettingsError, WriteError
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.votes import Votes
from tests.files.web_hdfs import web_hdfs
from tests.writer.object_store import ObjectStore, object_store

STORES = ["local", "webhdfs", "s3"]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An object store where every client finds it as it would find its own."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with object_store() as store:
        settings = {
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture(params=STORES)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "local":
            yield str(tmp_path / "out")
        case "webhdfs":
            with web_hdfs(tmp_path) as server:
                yield f"webhdfs://{server}/data/out"
        case _:
            request.getfixturevalue("s3")
            yield "s3://bucket/data/out"


def batch(number: int) -> Batch:
    return stream_batch(number, "query-1", start=[number], end=[number + 1])


def run(directory: str, number: int, **options: Any) -> Outcome:
    """One batch of three rows by a driver that has just started."""
    sink = FileSink(directory, "clicks", **options)
    rows = pa.record_batch({"id": pa.array(range(number * 3, number * 3 + 3))})
    return run_batch(
        batch(number),
        [sink],
        lambda writers: Votes.in_order({name: [writer.write(0, iter([rows]))] for name, writer in writers.items()}),
    )[sink.name]


def committed(directory: str) -> list[bytes]:
    storage = open_storage(directory)
    found = storage.read_all(lakesink.committed_files(directory, sink_id="clicks"))
    assert None not in found
    return [data for data in found if data is not None]


@pytest.mark.dear
def test_batches_are_committed_once_on_each_storage(directory: str) -> None:
    for number in range(3):
        assert isinstance(run(directory, number), Committed)
    assert run(directory, 2) == AlreadyCommitted(2)
    assert run(directory, 0) == AlreadyCommitted(0)
    files = committed(directory)
    assert len(files) == 3
    assert [pa.parquet.read_table(pa.BufferReader(data))["id"].to_pylist() for data in files] == [
        list(range(first, first + 3)) for first in (0, 3, 6)
    ]


def test_of_many_that_create_one_file_one_does(directory: str) -> None:
    location = f"{directory}/contended/file.json"
    contents = [f"number {number}".encode() * 1000 for number in range(12)]

    def create(data: bytes) -> bool:
        try:
            open_storage(directory).create(location, data)
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        created = list(pool.map(create, contents))
    [winner] = [data for data, did in zip(contents, created, strict=True) if did]
    assert open_storage(directory).read(location) == winner
    assert open_storage(directory).names(f"{directory}/contended") == ["file.json"]


def test_records_are_put_found_and_tidied_on_each_storage(directory: str) -> None:
    log = PreparedDirectory(f"{directory}/records")
    for number in range(3):
        log.put(batch(number), {"me": {"number": number}})
        log.landed(batch(number))
    names = open_storage(directory).names(f"{directory}/records")
    assert names == [f"2-{batch(2).fingerprint}.json"]
    assert PreparedDirectory(f"{directory}/records").find(batch(2)) == {"me": {"number": 2}}


def test_nothing_is_known_of_a_directory_that_is_not_there(directory: str) -> None:
    storage = open_storage(directory)
    assert storage.read(f"{directory}/none") is None
    assert storage.size(f"{directory}/none") is None
    assert storage.names(f"{directory}/none") == []
    assert storage.listing(f"{directory}/none") == {}
    with pytest.raises(CatalogError, match="LAKESINK_DIRECTORY_MISSING"):
        lakesink.committed_files(directory)


def test_a_server_that_ignores_the_condition_is_found_out_before_anything_is_written(s3: ObjectStore) -> None:
    s3.conditional = False
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_UNSUPPORTED") as refused:
        run("s3://bucket/out", 0)
    assert "exclusively" in str(refused.value)
    assert s3.objects == {}


def test_a_server_that_refuses_the_condition_is_told_before_anything_is_written(s3: ObjectStore) -> None:
    s3.knows_condition = False
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_UNSUPPORTED") as refused:
        run("s3://bucket/out", 0)
    assert "refuses a conditional one" in str(refused.value)
    assert s3.objects == {}


def test_a_put_whose_answer_is_lost_is_the_commit_although_the_clients_second_try_is_refused(s3: ObjectStore) -> None:
    """The client sends it again by itself, and the store says that something is there: our own marker."""
    s3.lost_answers = 1
    assert isinstance(run("s3://bucket/out", 0), Committed), "the probe's first answer was lost"
    sink = FileSink("s3://bucket/out", "clicks")
    begun = sink.begin(batch(1))
    assert not isinstance(begun, AlreadyCommitted)
    assert begun.writer is not None
    rows = pa.record_batch({"id": pa.array([3, 4, 5])})
    prepared = sink.pre_commit(begun, [begun.writer.write(0, iter([rows]))])
    s3.lost_answers = 1
    outcome = sink.commit(begun, prepared)
    assert isinstance(outcome, Committed)
    assert s3.lost_answers == 0
    assert run("s3://bucket/out", 1) == AlreadyCommitted(1)
    assert len(committed("s3://bucket/out")) == 2


def test_what_is_created_after_a_listing_is_in_the_next_one_by_the_same_client(directory: str) -> None:
    storage = open_storage(directory)
    storage.create(f"{directory}/listed/a", b"a")
    assert storage.listing(f"{directory}/listed") == {"a": 1}
    assert storage.size(f"{directory}/listed/b") is None
    open_storage(directory).create(f"{directory}/listed/b", b"bb")
    assert storage.listing(f"{directory}/listed") == {"a": 1, "b": 2}
    assert sorted(storage.names(f"{directory}/listed")) == ["a", "b"]
    assert storage.size(f"{directory}/listed/b") == 2


def test_an_object_store_that_lists_late_hides_no_commit(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        run("s3://bucket/out", number)
    assert s3.objects
    monkeypatch.setattr(ObjectStorage, "listing", lambda *_: {})
    assert len(committed("s3://bucket/out")) == 3
    assert isinstance(run("s3://bucket/out", 3), Committed)
    assert len(committed("s3://bucket/out")) == 4


def test_a_store_that_refuses_writes_is_named(s3: ObjectStore) -> None:
    s3.refuse = True
    with pytest.raises(CatalogError, match="LAKESINK_DIRECTORY_UNWRITABLE"):
        run("s3://bucket/out", 0)


def test_a_store_that_nobody_answers_for_is_named(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert s3.endpoint
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(CatalogError, match="LAKESINK_DIRECTORY_FAILED"):
        run("s3://bucket/out", 0)


@pytest.mark.parametrize(
    ("directory", "told"),
    [
        ("memory://out", "no safe method"),
        ("hdfs://namenode/out", "overwrites"),
        ("nosuch://x/out", "no safe method"),
    ],
)
def test_a_storage_that_cannot_keep_the_promise_is_refused_before_anything_starts(directory: str, told: str) -> None:
    with pytest.raises(WriteError, match=r"LAKESINK_STORAGE_UNSUPPORTED.*exclusively") as refused:
        FileSink(directory, "clicks")
    assert told in str(refused.value)
    with pytest.raises(WriteError, match="exclusively"):
        ObjectStorage(None).create(f"{directory}/file", b"")


def test_a_scheme_whose_package_is_missing_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_UNSUPPORTED") as refused:
        run("gs://bucket/out", 0)
    assert "pip install gcsfs" in str(refused.value)


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(WriteError, match="hard links"):
        run(str(tmp_path / "out"), 0)
    assert lakesink.committed_files(tmp_path / "out") == []


class Forgetful(LocalStorage):
    """A storage that says yes to both."""

    def create(self, location: str, data: bytes) -> None:
        self.replace(location, data)


class Stubborn(LocalStorage):
    """A storage that keeps the first, and tells nobody."""

    def create(self, location: str, data: bytes) -> None:
        if self.read(location) is None:
            super().create(location, data)


@pytest.mark.parametrize("storage", [Forgetful(), Stubborn()])
def test_a_storage_that_does_not_tell_of_two_who_was_first_is_found_out(tmp_path: Path, storage: Storage) -> None:
    with pytest.raises(WriteError, match="exclusively"):
        prove_exclusive(storage, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["", "/below"])
def test_a_directory_that_is_a_file_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("rows of somebody")
    for use in (lambda where: run(where, 0), lakesink.committed_files):
        with pytest.raises(CatalogError, match=r"LAKESINK_DIRECTORY_INVALID.*file"):
            use(f"{tmp_path}/file{place}")
    assert (tmp_path / "file").read_text() == "rows of somebody"


def test_a_directory_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(CatalogError, match="LAKESINK_DIRECTORY_UNWRITABLE"):
        run(str(tmp_path / "out"), 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"directory": ""}, "directory"),
        ({"directory": "a\nb"}, "directory"),
        ({"directory": 7}, "directory"),
        ({"directory": "/data/*/out"}, "pattern"),
        ({"directory": "/data/{a,b}"}, "pattern"),
        ({"directory": "s3://key:hunter2secret@bucket/out"}, "credentials"),
        ({"sink_id": "../up"}, "sink_id"),
        ({"sink_id": ""}, "sink_id"),
        ({"compression_codec": "gzpi"}, "Did you mean 'gzip'"),
        ({"target_file_size_bytes": 0}, "target_file_size_bytes"),
        ({"target_file_size_bytes": "many"}, "512MB"),
        ({"accept": "Gap"}, "accept"),
        ({"accept": "LedgerDamaged:3:commit"}, "accept"),
        ({"prepared_max_age": "soon"}, "prepared_max_age"),
    ],
)
def test_an_option_that_is_wrong_is_told_before_anything_is_opened(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        FileSink(**({"directory": "/nowhere/out", "sink_id": "clicks"} | arguments))
    first = str(refused.value).splitlines()[0]
    assert told in str(refused.value)
    assert len(first) < 200
    assert "hunter2secret" not in str(refused.value)


def test_options_are_read_as_people_write_them(tmp_path: Path) -> None:
    sink = FileSink(f"file://{tmp_path}/a/../out/", "clicks", compression_codec="None", target_file_size_bytes="1MB")
    assert sink.layout.directory == f"{tmp_path}/out"
    assert (sink.codec, sink.target_file_size_bytes) == ("uncompressed", 1024**2)
    assert sink.name == f"clicks@{tmp_path}/out"
