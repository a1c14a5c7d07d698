"""The same proof on an object store, and by PyIceberg's other way to read files: nothing in it is of one storage."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lakesink_tools.audit.audit import Proof, audit
from testkit.builders import TABLE, FaultyCatalog, Lake, Stream
from tests.writer.object_store import ObjectStore, object_store

LEFT = "data/events-1-00000-0b9ae0a8-94d2-4e63-8d3a-2b9e4a5c1d70.parquet"


def seen(proof: Proof) -> tuple[list[str], int, int, int, str]:
    codes = [finding.code.name for finding in proof.findings]
    return codes, proof.files, proof.leftovers.files, proof.leftovers.bytes, proof.leftovers.unlisted


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


def test_a_table_on_an_object_store(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "key"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    properties = {"s3.endpoint": store.endpoint, "s3.region": "us-east-1", "warehouse": "s3://bucket/lake"}
    lake = Lake(tmp_path, FaultyCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", **properties))
    lake.catalog.create_namespace("demo")
    lake.create()
    Stream(lake).filled(3)
    folder = lake.table().location().removeprefix("s3://")
    store.objects[f"{folder}/{LEFT}"] = bytes(7)
    assert seen(audit(lake.table())) == ([], 3, 1, 7, "")
    gone = next(key for key in store.objects if "/events-2-" in key)
    del store.objects[gone]
    [found] = audit(lake.table()).findings
    assert (found.code.name, found.items) == ("FILE_MISSING", (f"s3://{gone}",))


def by_fsspec(lake: Lake) -> Table:
    properties = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", "warehouse": f"file://{lake.folder}/warehouse"}
    return SqlCatalog("test", uri=f"sqlite:///{lake.folder}/catalog.db", **properties).load_table(TABLE)


def test_a_table_that_is_read_by_fsspec(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).filled(3)
    (lake.folder / "warehouse/demo/events" / LEFT).write_bytes(bytes(7))
    assert seen(audit(by_fsspec(lake))) == ([], 3, 1, 7, "")
    next(path for path in lake.files() if path.name.startswith("events-2-")).unlink()
    assert seen(audit(by_fsspec(lake)))[0] == ["FILE_MISSING"]
