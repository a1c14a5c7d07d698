"""Builders that every room of the tests shares: one Spark session for each who runs tests, and empty folders."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import settings

from testkit import jvm
from testkit.examples import MANY, examples
from testkit.installed import installed

if TYPE_CHECKING:
    from testkit.builders import Lake

ROOT = Path(__file__).parents[1]
LONG = ("soak", "nightly", "interop", "site")
DRIVERS = ("driver", "page")
ROOMS = {
    "spark": ("demo", "files", "spark", "test_executed.py", "watch"),
    "driver": ("cli", "demo", "deploy", "processes", "spark", "test_docs.py", "upgrade", "watch", "website"),
}
"""Where tests with such needs are: to collect all tests takes each process twenty seconds."""

settings.register_profile("lakesink", examples(25))
settings.load_profile("lakesink")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(jvm.VARIABLE, jvm.options())
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")  # PySpark's, at every collect


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", metavar="K/N", help="tests of the Kth of N slices; changed pages are in each")
    parser.addoption("--brief", metavar="FOLDER", help="the first case alone of each function in this folder of tests")
    parser.addoption("--needs", choices=ROOMS, help="collect only the rooms that have tests with such needs")
    parser.addoption("--changed-pages", action="store_true", help="of pages and examples those that changed lately")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    needs = config.getoption("needs")
    return True if needs and collection_path.parent == ROOT / "tests" and not is_in(needs, collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests by what they need before marks select, and take a slice of what they leave."""
    in_session = [item for item in items if "spark" in getattr(item, "fixturenames", ())]
    for item in in_session:
        item.add_marker("spark")
    needy = [("spark", item) for item in in_session] + [("driver", item) for item in items if is_marked(item, *DRIVERS)]
    if lost := [item.nodeid for needs, item in needy if not is_marked(item, *LONG) and not is_in(needs, item.path)]:
        raise pytest.UsageError(f"ROOMS in tests/conftest.py do not have these, so that no step runs them: {lost}")
    dear = [item for item in items if is_marked(item, "dear") and not is_marked(item, "spark")]
    for item in [] if MANY else further_cases(dear):  # at night `make test` draws many seeds, and runs them all
        item.add_marker("soak")
    for item in samples([item for item in in_session if not is_marked(item, "dear", *LONG)]):
        item.add_marker("sample")
    if brief := config.getoption("brief"):
        first = {function(item): item for item in reversed(items) if not is_marked(item, *LONG)}
        keep(config, items, [item for item in items if first.get(function(item)) is item or not below(item, brief)])
    if changed_pages := config.getoption("changed_pages"):
        changed = changed_lately()
        keep(config, items, [item for item in items if shows_one_of(changed, item)])
    items.sort(key=needs)
    yield
    if wanted := config.getoption("slice"):
        number, count = map(int, wanted.split("/"))
        always = ("page",) if changed_pages else ()
        keep(config, items, [item for item in items if is_marked(item, *always) or place(item) % count == number - 1])


def pytest_collection_finish() -> None:
    """Twelve thousand collected tests are no garbage: to look through them again and again costs a twentieth."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def further_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """All but the first case of each function."""
    first = {function(item): item for item in reversed(items)}
    return [item for item in items if first[function(item)] is not item]


def samples(items: list[pytest.Item]) -> list[pytest.Item]:
    """The first case of the first two functions in each file."""
    functions: dict[Path, dict[str, pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.path, {}).setdefault(function(item), item)
    return [item for found in functions.values() for item in list(found.values())[:2]]


def is_in(needs: str, path: Path) -> bool:
    return path.relative_to(ROOT / "tests").parts[0] in ROOMS[needs]


def function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def below(item: pytest.Item, folder: str) -> bool:
    return item.path.is_relative_to(ROOT / folder)


def keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def place(item: pytest.Item) -> int:
    """Tells a test's slice: the same for a group by its mark, else for a file, and whichever other tests there are."""
    mark = item.get_closest_marker("xdist_group")
    group = str(mark.args[0]) if mark else item.path.relative_to(ROOT / "tests").as_posix()
    return crc32(group.encode())


def needs(item: pytest.Item) -> int:
    """Fast tests first: a mistake shows in seconds, and many short ones follow drivers, which take a minute each."""
    return 2 if is_marked(item, "spark") else 1 if is_marked(item, *DRIVERS) else 0


def is_marked(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) for name in names)


def shows_one_of(changed: list[str] | None, item: pytest.Item) -> bool:
    """False for a test of a page or example if neither that nor what it shows has changed."""
    page = item.get_closest_marker("page")
    if page is None or changed is None:
        return True
    return any(path.startswith(page.args) for path in changed)


def changed_lately() -> list[str] | None:
    """Files that differ from those of four hours before this commit; None if the clone does not know these."""
    before = datetime.fromisoformat(git("log", "-1", "--format=%cI")) - timedelta(hours=4)
    base = git("rev-list", "-1", "--first-parent", f"--before={before.isoformat()}", "HEAD")
    if not base:
        return None
    others = git("ls-files", "--others", "--exclude-standard")
    return [*git("diff", "--name-only", "--no-renames", base).splitlines(), *others.splitlines()]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


@pytest.fixture(autouse=True)
def _no_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without a mark starts no driver, in no process of its own either: the JVM does not know the option."""
    if not is_marked(request.node, "spark", *DRIVERS, *LONG):
        monkeypatch.setenv(jvm.VARIABLE, "-XX:+ThisTestNeedsTheMarkDriver")


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
def lake(tmp_path: Path) -> "Lake":
    """An empty lake of the test's own."""
    from testkit.builders import Lake  # noqa: PLC0415 - most tests have none

    return Lake.make(tmp_path)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty `LAKESINK_HOME`: the embedded catalog of one test, with nothing of the user's configuration."""
    folder = tmp_path / "lakehouse"
    monkeypatch.setenv("LAKESINK_HOME", str(folder))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return folder
