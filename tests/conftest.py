"""Builders that every room of the tests shares: one Spark session for each who runs tests, and empty folders."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from testkit import jvm
from testkit.installed import installed

SLOW_ROOMS = {
    "readers": 1,
    "test_docs.py": 2,
    "website": 2,
    "demo": 3,
    "deploy": 3,
    "processes": 4,
    "upgrade": 4,
    "spark": 5,
    "soak": 6,
}
"""Many short tests follow the drivers, which take up to a minute each, so that no worker waits long for the other."""

# The same examples in every run of one version: a new one is found by LAKESINK_EXAMPLES=random, not by chance in CI.
settings.register_profile(
    "same",
    derandomize=os.environ.get("LAKESINK_EXAMPLES") != "random",
    deadline=None,  # no test is timed: this machine may be busy
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(jvm.VARIABLE, jvm.options())
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")  # PySpark's, at every collect


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a mistake shows in seconds, and only what passes them pays for drivers of its own."""
    items.sort(key=lambda item: max((rank for part, rank in SLOW_ROOMS.items() if part in item.path.parts), default=0))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Spark session of this process. Its executors run this very Python, and not `python3` of the path."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - tests without Spark must not pay for it

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("lakesink-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # short runs: start fast
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where lakesink is installed as users install it."""
    return installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty `LAKESINK_HOME`: the embedded catalog of one test, with nothing of the user's configuration."""
    folder = tmp_path / "lakehouse"
    monkeypatch.setenv("LAKESINK_HOME", str(folder))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return folder
