"""One cluster, one object store and one catalog for all tests of a run; and the Pythons that executors may have."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakesink_tools.cli.run.pack import FOLDER
from servers.postgres import USER, postgres_server
from servers.s3 import s3
from servers.spark_cluster import spark_cluster
from tests.interop.cluster.ground import BUCKET, CATALOG, Ground
from tests.interop.cluster.pythons import Pythons

PASSWORD = "wachtwoord"  # noqa: S105 - of a database that lives for one run


@pytest.fixture(scope="package")
def ground(tmp_path_factory: pytest.TempPathFactory, pythons: Pythons) -> Iterator[Ground]:
    """The workers' machines have a bare Python and keys of the store; only drivers have the catalog's password."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        s3(folder / "s3", BUCKET) as store,
        postgres_server(PASSWORD) as database,
        pytest.MonkeyPatch.context() as own,
    ):
        path = f"{pythons.bare.parent}{os.pathsep}{os.environ['PATH']}"
        with spark_cluster(folder / "spark", {**store.environment, "PATH": path}) as cluster:
            prefix = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
            own.setenv(f"{prefix}URI", f"postgresql+psycopg2://{USER}:{PASSWORD}@{database.address}")
            own.setenv(f"{prefix}WAREHOUSE", f"s3://{BUCKET}/warehouse")
            for name, value in store.properties.items():
                own.setenv(prefix + name.upper().replace(".", "__").replace("-", "_"), value)
            for name, value in store.environment.items():
                own.setenv(name, value)
            yield Ground(cluster, store)
        for unpacked in (folder / "spark").glob(f"worker-*/*/*/{FOLDER}"):
            shutil.rmtree(unpacked)  # pytest keeps the folders of three runs


@pytest.fixture(scope="package")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Pythons:
    return Pythons(tmp_path_factory.mktemp("pythons"))


@pytest.fixture
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder whose name is a table's name."""
    name: str = request.node.originalname
    return tmp_path / name.removeprefix("test_")[:60]
