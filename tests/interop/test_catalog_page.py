"""The pages on catalogs and storage: every configuration on them is put where a user puts it, and doctor tries it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from lakesink.parquet.filesystem import fsspec_filesystem
from lakesink_catalog.connect.catalog import connect
from lakesink_protocol.errors import WriteError
from servers.catalog_clients import made_importable
from servers.glue import glue
from servers.hdfs import client_environment, hdfs
from servers.hive import hive
from servers.jars import HADOOP
from servers.postgres import postgres_server
from servers.s3 import S3, s3
from testkit.harness import PATIENCE_SECONDS
from testkit.http_servers import Answer, Request, error_answer, http_server
from testkit.rest_catalog import RestService
from tests.interop.pages import block

pytestmark = pytest.mark.interop
SECRET = "c4n4ry-of-the-catalog"  # noqa: S105 - of servers that live for one test
CLIENT = f"me:{SECRET}"
NOT_CERTIFIED = ("hive", "glue")


@dataclass(frozen=True)
class Place:
    """A real thing in place of those that a page names.

    Attributes:
        instead: What stands for what in the page's text.
        environment: Where secrets are, as the page has it.
    """

    instead: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def a_folder(_: Path) -> Iterator[Place]:
    yield Place({})


@contextmanager
def a_database(folder: Path) -> Iterator[Place]:
    with postgres_server(SECRET) as server:
        passwords = folder / "pgpass"
        passwords.write_text(f"127.0.0.1:{server.port}:*:lake:{SECRET}\n")
        passwords.chmod(0o600)
        yield Place({"db.example:5432/lake": server.address}, {"PGPASSFILE": str(passwords)})


@contextmanager
def a_service(folder: Path, warehouse: str = "", **properties: str) -> Iterator[Place]:
    """It lets in who bears the token, and gives it to who has the client's secret."""
    kept = {"uri": f"sqlite:///{folder}/backing.db", "warehouse": warehouse or f"file://{folder}/backing", **properties}
    service = RestService(connect("backing", kept))

    def answer(request: Request) -> Answer:
        if request.path == "/v1/oauth/tokens":
            asked = {key: value for key, [value] in parse_qs(request.body.decode()).items()}
            wanted = {"client_id": "me", "client_secret": SECRET, "scope": "PRINCIPAL_ROLE:ALL"}
            return (
                (200, {"access_token": SECRET, "token_type": "bearer"}) if wanted.items() <= asked.items() else REFUSED
            )
        bears = request.headers.get("Authorization") == f"Bearer {SECRET}"
        return service.answer(request) if bears or request.path == "/v1/config" else REFUSED

    with http_server(answer) as uri:
        yield Place({"http://catalog.example:8181": uri, "<TOKEN>": SECRET, "<CLIENT>:<SECRET>": CLIENT})


REFUSED = error_answer(401, "NotAuthorizedException")


@contextmanager
def a_store(folder: Path) -> Iterator[Place]:
    with running_s3(folder) as server:
        yield Place({"s3.example:9000": server.endpoint.removeprefix("http://")}, server.environment)


@contextmanager
def a_service_over_a_store(folder: Path) -> Iterator[Place]:
    with a_store(folder) as store, pytest.MonkeyPatch.context() as own:
        for name, value in store.environment.items():
            own.setenv(name, value)
        endpoint = f"http://{store.instead['s3.example:9000']}"
        properties = {"s3.endpoint": endpoint, "s3.region": "us-east-1"}
        with a_service(folder, "s3://bucket/warehouse", **properties) as service:
            yield Place({**store.instead, **service.instead}, store.environment)


@contextmanager
def a_cluster(folder: Path) -> Iterator[Place]:
    with hdfs(folder / "hdfs") as cluster:
        yield Place({"hdfs://namenode.example:8020": cluster.uri}, client_environment())


@contextmanager
def a_metastore(folder: Path) -> Iterator[Place]:
    with hive(folder / "hive") as server:
        yield Place({"metastore.example:9083": server.uri.removeprefix("thrift://")}, made_importable())


@contextmanager
def an_emulated_glue(folder: Path) -> Iterator[Place]:
    """On Amazon's, nobody names endpoints."""
    with running_s3(folder) as store, glue(folder / "glue", store, "s3://bucket/warehouse") as server:
        here = {"PYICEBERG_CATALOG__LAKE__GLUE__ENDPOINT": server.endpoint}
        here["PYICEBERG_CATALOG__LAKE__S3__ENDPOINT"] = store.endpoint
        yield Place({}, {**store.environment, **made_importable(), **here})


@contextmanager
def running_s3(folder: Path) -> Iterator[S3]:
    with s3(folder / "s3", "bucket") as server:
        yield server


RECIPES: Mapping[tuple[str, str], Callable[[Path], AbstractContextManager[Place]]] = {
    ("use/catalogs.md", "sqlite"): a_folder,
    ("use/catalogs.md", "postgresql"): a_database,
    ("use/catalogs.md", "rest-token"): a_service,
    ("use/catalogs.md", "rest-oauth"): a_service,
    ("use/catalogs.md", "rest-s3"): a_service_over_a_store,
    ("use/catalogs.md", "in-memory"): a_folder,
    ("use/catalogs.md", "hive"): a_metastore,
    ("use/catalogs.md", "glue"): an_emulated_glue,
    ("use/storage.md", "s3"): a_store,
    ("use/storage.md", "hdfs"): a_cluster,
}


def doctor(folder: Path, configuration: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    (folder / ".pyiceberg.yaml").write_text(configuration)
    call = [
        str(Path(sys.executable).with_name("lakesink")),
        "doctor",
        "--catalog",
        "lake",
        "--write-probe",
        "--no-spark",
    ]
    own = {**os.environ, "PYICEBERG_HOME": str(folder), **environment}
    return subprocess.run(
        [*call, "--output", "json"],
        cwd=folder,
        env=own,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(("page", "name"), RECIPES)
def test_a_configuration_works_as_it_is_printed(page: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "srv").mkdir()
    with RECIPES[page, name](tmp_path) as place:
        text = block(page, name).replace("/srv/lake", str(tmp_path / "srv"))
        for printed, real in place.instead.items():
            assert printed in text or len(place.instead) > 1, f"{name} does not name {printed}"
            text = text.replace(printed, real)
        assert ".example" not in text
        if "sqlite:" in text:  # its first stream makes it
            connect("lake", {"uri": f"sqlite:///{tmp_path}/srv/catalog.db"})
        done = doctor(tmp_path, text, place.environment)
    found = {(check["part"], check["check"]): check for check in json.loads(done.stdout)["checks"]}
    troubles = [check for check in found.values() if check["standing"] == "failed"]
    assert (done.returncode, troubles) == (0, []), done.stderr
    assert found["catalog", "kind"]["standing"] == ("warning" if name in NOT_CERTIFIED else "ok")
    for check in ("compare-and-swap", "data files", "metadata files"):
        assert found["catalog", check]["standing"] == "ok", found["catalog", check]
    for secret in (SECRET, *(value for key, value in place.environment.items() if key.endswith("_KEY"))):
        assert secret not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["rest-token", "rest-oauth"])
def test_a_rejected_token_is_told_without_it(name: str, tmp_path: Path) -> None:
    with a_service(tmp_path) as place:
        wrong = {**place.instead, "<TOKEN>": "an-old-one", "<CLIENT>:<SECRET>": "me:an-old-one"}
        text = block("use/catalogs.md", name)
        for printed, real in wrong.items():
            text = text.replace(printed, real)
        done = doctor(tmp_path, text, {})
    assert done.returncode == 1
    assert "LAKESINK_CATALOG_REJECTED" in done.stdout
    assert "an-old-one" not in done.stdout + done.stderr


def test_hdfs_without_its_library_is_told_by_name(tmp_path: Path) -> None:
    text = block("use/storage.md", "hdfs").replace("/srv/lake", str(tmp_path))
    connect("lake", {"uri": f"sqlite:///{tmp_path}/catalog.db"})
    java = client_environment()["JAVA_HOME"]
    done = doctor(tmp_path, text, {"JAVA_HOME": java, "ARROW_LIBHDFS_DIR": str(tmp_path), "HADOOP_HOME": str(tmp_path)})
    assert done.returncode == 1
    assert "LAKESINK_WAREHOUSE_UNWRITABLE" in done.stdout
    assert "libhdfs" in done.stdout


@pytest.mark.parametrize("kind", NOT_CERTIFIED)
def test_a_kind_whose_package_is_missing_names_it(kind: str) -> None:
    """In a process of its own: this one may have imported the package for another test."""
    opens = f"connect('lake', {{'type': {kind!r}, 'uri': 'thrift://127.0.0.1:1'}}).list_namespaces()"
    call = [sys.executable, "-c", f"from lakesink_catalog.connect.catalog import connect; {opens}"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert "LAKESINK_CATALOG_NOT_INSTALLED" in done.stderr
    assert f"pyiceberg[{kind}]" in done.stderr


@pytest.mark.parametrize(
    ("location", "package"), [("gs://bucket/data", "gcsfs"), ("abfss://c@account.dfs.core.windows.net/data", "adlfs")]
)
def test_a_storage_whose_package_is_missing_ends_as_it_is_printed(location: str, package: str) -> None:
    with pytest.raises(WriteError) as refused:
        fsspec_filesystem(location)
    assert str(refused.value).partition("\n")[0] in block("use/storage.md", "without-extra").splitlines()
    assert f"pip install {package}`" in refused.value.action


def test_the_settings_of_the_checkpoint_are_those_that_the_streams_of_the_tests_run_with(tmp_path: Path) -> None:
    printed = dict(line.split() for line in block("use/storage.md", "s3a").splitlines())
    assert printed.pop("spark.jars.packages") == f"org.apache.hadoop:hadoop-aws:{HADOOP}"
    server = S3(tmp_path)
    assert {key: value.replace("http://s3.example:9000", server.endpoint) for key, value in printed.items()} == (
        server.hadoop
    )
