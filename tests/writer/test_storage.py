"""Storage is opened where it is used, with secrets that never travelled, and fails in words that help."""

import gc
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, S3FileSystem
from pyiceberg.types import LongType

from lakesink.parquet.filesystem import open_filesystem, shareable_properties
from lakesink_protocol.errors import WriteError
from testkit.tasks import column, in_batches, plan_for, spec_of, write, writer_of
from tests.writer.object_store import ObjectStore, object_store

ROWS = pa.table({"c": range(1_000)})
SECRET = "correct-horse-battery-staple"  # noqa: S105 - what must never show


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectStore]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with object_store() as opened:
        yield opened


def s3_properties(store: ObjectStore) -> dict[str, str]:
    return {"s3.endpoint": store.endpoint, "s3.region": "eu-central-1", "s3.request-timeout": "5"}


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "FILE://"])
def test_local_locations_are_written_in_every_spelling(prefix: str, tmp_path: Path) -> None:
    receipt = write(plan_for(column(LongType()), f"{prefix}{tmp_path}/a b%20c/data"), in_batches(ROWS, 100))
    [found] = tmp_path.rglob("*.parquet")
    assert found.parent == tmp_path / "a b%20c/data"
    assert receipt.files[0].path == f"{prefix}{found}"


@pytest.mark.parametrize("location", ["file:/x/y", "file:///x/y", "/x/y", "file://localhost/x/y"])
def test_a_local_location_is_a_path(location: str) -> None:
    filesystem, path_of = open_filesystem(location, {}, None)
    assert isinstance(filesystem, LocalFileSystem)
    assert path_of(location) == "/x/y"


def test_any_fsspec_file_system_is_written(tmp_path: Path) -> None:
    location = f"memory://lake{tmp_path}/data"
    receipt = write(plan_for(column(LongType()), location, spec_of("bucket[3]")), in_batches(ROWS, 100))
    for file in receipt.files:
        with fsspec.open(file.path, "rb") as stream:
            content = stream.read()
        assert len(content) == file.file_size_bytes
        assert pq.read_metadata(pa.BufferReader(content)).num_rows == file.record_count


def test_a_failed_task_leaves_nothing_on_an_fsspec_file_system(tmp_path: Path) -> None:
    location = f"memory://lake{tmp_path}/failed"
    with pytest.raises(ZeroDivisionError):
        write(plan_for(column(LongType()), location, spec_of("bucket[3]"), buffer_bytes=1), failing_batches())
    assert fsspec.filesystem("memory").find(location) == []


def failing_batches() -> Iterator[pa.RecordBatch]:
    yield from in_batches(ROWS, 100)
    raise ZeroDivisionError


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize("transforms", [(), ("bucket[3]",)])
def test_files_reach_an_s3_store_whole(
    scheme: str, transforms: tuple[str, ...], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    plan = plan_for(column(LongType()), f"{scheme}://lake/data", spec_of(*transforms), file_io=s3_properties(store))
    receipt = write(plan, in_batches(ROWS, 100))
    assert store.keys == {"from-the-environment"}
    assert {f"{scheme}://{name}" for name in store.objects} == {file.path for file in receipt.files}
    for file in receipt.files:
        content = store.objects[file.path.removeprefix(f"{scheme}://")]
        assert len(content) == file.file_size_bytes
        assert pq.read_metadata(pa.BufferReader(content)).num_rows == file.record_count


def test_an_executor_finds_its_own_secrets_in_pyicebergs_configuration(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__S3__ACCESS_KEY_ID", "from-the-configuration")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__S3__SECRET_ACCESS_KEY", SECRET)
    plan = plan_for(column(LongType()), "s3://lake/data", file_io=s3_properties(store), catalog_name="prod")
    assert SECRET.encode() not in pickle.dumps(writer_of(plan))
    write(plan, in_batches(ROWS, 100))
    assert store.keys == {"from-the-configuration"}


def test_a_refused_upload_is_a_storage_error_without_secrets(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store.refuse = True
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_REJECTED") as caught:
        write(plan_for(column(LongType()), "s3://lake/data", file_io=s3_properties(store)), in_batches(ROWS, 100))
    assert "AWS Error ACCESS_DENIED" in caught.value.what
    assert "s3://lake/data" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert store.objects == {}


def test_a_failed_task_leaves_nothing_in_an_s3_store(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    plan = plan_for(column(LongType()), "s3://lake/data", file_io=s3_properties(store), buffer_bytes=1)
    with pytest.raises(ZeroDivisionError):
        write(plan, failing_batches())
    assert set(store.objects.values()) <= {b""}, "at most a marker of the folder"


def test_properties_of_the_store_become_the_file_systems() -> None:
    properties = {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "eu-north-1", "s3.anonymous": "true"}
    filesystem, path_of = open_filesystem("s3://lake/data", properties, None)
    assert isinstance(filesystem, S3FileSystem)
    assert filesystem.region == "eu-north-1"
    assert path_of("s3://lake/data/x.parquet") == "lake/data/x.parquet"


GIVEN: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"s3.anonymous": "false"}, {"anonymous": False}),
    ({"s3.anonymous": " TRUE "}, {"anonymous": True}),
    ({"s3.force-virtual-addressing": "false"}, {"force_virtual_addressing": False}),
    ({"s3.force-virtual-addressing": "1"}, {"force_virtual_addressing": True}),
    ({"s3.role-arn": "arn:a"}, {"role_arn": "arn:a"}),
    ({"client.role-arn": "arn:b"}, {"role_arn": "arn:b"}),
    ({"s3.role-arn": "arn:a", "client.role-arn": "arn:b"}, {"role_arn": "arn:a"}),
    ({"s3.role-session-name": "a"}, {"session_name": "a"}),
    ({"client.role-session-name": "b"}, {"session_name": "b"}),
    ({"s3.role-session-name": "a", "client.role-session-name": "b"}, {"session_name": "a"}),
    ({"s3.connect-timeout": "7", "s3.request-timeout": "2.5"}, {"connect_timeout": 7.0, "request_timeout": 2.5}),
]


@pytest.mark.parametrize(("properties", "expected"), GIVEN)
def test_each_property_has_icebergs_meaning(
    properties: dict[str, str], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_with = dict[str, Any]()  # a real one with a role asks the network
    monkeypatch.setattr("lakesink.parquet.filesystem.S3FileSystem", made_with.update)
    open_filesystem("s3://lake/data", {"s3.region": "eu-north-1", **properties}, None)
    assert made_with == {"region": "eu-north-1", "anonymous": False, "force_virtual_addressing": False, **expected}


REGIONS: list[tuple[dict[str, str], str]] = [
    ({}, "found-lake"),
    ({"s3.region": "a"}, "a"),
    ({"client.region": "b"}, "b"),
    ({"s3.region": "a", "client.region": "b"}, "a"),
    ({"s3.region": "a", "s3.resolve-region": "false"}, "a"),
    ({"s3.region": "a", "s3.resolve-region": "true"}, "found-lake"),
    ({"s3.region": "a", "s3.resolve-region": "true", "s3.endpoint": "http://127.0.0.1:1"}, "a"),
]


@pytest.mark.parametrize(("properties", "expected"), REGIONS)
def test_a_region_that_is_not_given_is_that_of_the_bucket(
    properties: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakesink.parquet.filesystem.resolve_s3_region", lambda bucket: f"found-{bucket}")
    filesystem, _ = open_filesystem("s3://lake/data", properties, None)
    assert filesystem.region == expected


def test_a_region_that_cannot_be_found_is_the_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(bucket: str) -> str:
        raise OSError(bucket)

    monkeypatch.setattr("lakesink.parquet.filesystem.resolve_s3_region", unknown)
    filesystem, _ = open_filesystem("s3://lake/data", {"s3.region": "a", "s3.resolve-region": "true"}, None)
    assert filesystem.region == "a"


def test_requests_that_the_catalog_would_sign_are_refused() -> None:
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_UNSUPPORTED") as caught:
        open_filesystem("s3://lake/data", {"s3.signer": "S3V4RestSigner"}, None)
    assert "s3.signer" in str(caught.value)


def test_only_properties_without_secrets_are_shared() -> None:
    io_properties: dict[str, Any] = {
        "s3.endpoint": "https://minio:9000",
        "s3.region": "us-east-1",
        "s3.request-timeout": 30,
        "s3.access-key-id": SECRET,
        "s3.secret-access-key": SECRET,
        "s3.session-token": SECRET,
        "s3.proxy-uri": f"http://user:{SECRET}@proxy:80",
        "gcs.oauth2.token": SECRET,
        "gcs.project-id": "lake",
        "gcs.service.host": f"https://storage/?token={SECRET}",
        "adls.account-name": "lake",
        "adls.account-key": SECRET,
        "adls.connection-string": SECRET,
        "uri": f"postgresql://user:{SECRET}@db/catalog",
        "credential": SECRET,
        "token": SECRET,
        "header.Authorization": SECRET,
        "py-io-impl": "evil.FileIO",
    }
    shared = shareable_properties(io_properties)
    assert shared == {
        "s3.endpoint": "https://minio:9000",
        "s3.region": "us-east-1",
        "s3.request-timeout": "30",
        "gcs.project-id": "lake",
        "adls.account-name": "lake",
    }


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("gs://lake/data", "pip install gcsfs"),
        ("abfss://c@a.dfs.core.windows.net/data", "pip install adlfs"),
        ("gopher://x/y", "gopher"),
    ],
)
def test_a_scheme_without_its_package_names_what_to_install(location: str, told: str) -> None:
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_UNSUPPORTED") as caught:
        open_filesystem(location, {}, None)
    assert told in str(caught.value)


DISK_FULL = """
import resource, signal, sys
import pyarrow as pa, random
from lakesink_protocol.errors import WriteError
from pyiceberg.types import BinaryType
from testkit.tasks import column, in_batches, plan_for, write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
room = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
rows = pa.table({"c": [random.randbytes(1_000) for _ in range(2_000)]})
try:
    write(plan_for(column(BinaryType()), sys.argv[1], buffer_bytes=100_000), in_batches(rows, 10))
except WriteError as error:
    print(error.code)
"""


@pytest.mark.parametrize("room_bytes", [0, 300_000])
def test_a_full_disk_is_a_storage_error_and_the_broken_file_is_gone(tmp_path: Path, room_bytes: int) -> None:
    command = [sys.executable, "-c", DISK_FULL, str(tmp_path / "data"), str(room_bytes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout.strip() == "LAKESINK_STORAGE_WRITE"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.filterwarnings("error")
def test_what_is_abandoned_has_no_footer_even_where_it_cannot_be_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def linked() -> Iterator[pa.RecordBatch]:
        yield from in_batches(ROWS, 500)
        [path] = tmp_path.rglob("*.parquet")
        kept.hardlink_to(path)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(plan_for(column(LongType()), tmp_path / "data", buffer_bytes=1), linked())
    gc.collect()
    assert kept.stat().st_size > 0
    with pytest.raises(pa.ArrowInvalid):
        pq.read_metadata(kept)
    assert list(tmp_path.rglob("*.parquet")) == []
