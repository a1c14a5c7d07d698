"""A catalog server dies or hangs in the middle of a commit of a real stream, and comes back."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from servers.postgres import Postgres, postgres_server
from servers.rest_reference import RestReference, rest_reference
from testkit.harness import Stream, expected, own_snapshots, rows_of, wait_for

pytestmark = pytest.mark.interop
PASSWORD = "s3cret-of-the-catalog"  # noqa: S105 - of a database that lives for one test
FILES = 4
PATIENCE = {"commit.retry.num-retries": "3", "commit.retry.max-wait-ms": "1000"}


@dataclass(frozen=True, slots=True)
class Lake:
    server: Postgres | RestReference
    properties: dict[str, Any]
    stream: Stream

    def load(self) -> Table:
        return load_table(connect("lake", self.properties), self.stream.table)

    def rows(self) -> Counter[tuple[int, int]]:
        return rows_of(self.load())


@contextmanager
def over_postgresql(folder: Path) -> Iterator[tuple[Postgres, dict[str, Any]]]:
    with postgres_server(PASSWORD) as server:
        uri = f"postgresql://lake:{PASSWORD}@{server.address}?connect_timeout=10"
        yield server, {"uri": uri, "warehouse": f"file://{folder}/warehouse"}


@contextmanager
def over_rest(folder: Path) -> Iterator[tuple[RestReference, dict[str, Any]]]:
    with rest_reference(folder) as server:
        timeout = {"lakesink.http-timeout-seconds": "5"}
        yield server, {"type": "rest", "uri": server.uri, "token": PASSWORD, **timeout}


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    with request.param(tmp_path) as (server, properties):
        columns = pa.schema([("file", pa.int64()), ("row", pa.int64())])
        table = create_table(connect("lake", properties), "demo.numbers", columns)
        table.transaction().set_properties(PATIENCE).commit_transaction()
        environment = {f"PYICEBERG_CATALOG__LAKE__{_variable(key)}": value for key, value in properties.items()}
        yield Lake(server, properties, Stream(tmp_path / "stream", {"catalog": "lake"}, environment=environment))


def _variable(key: str) -> str:
    return key.upper().replace("-", "_").replace(".", "__")


def dies(server: Postgres | RestReference) -> Callable[[], None]:
    server.kill()
    return server.start


def hangs(server: Postgres | RestReference) -> Callable[[], None]:
    server.pause()
    return server.resume


@pytest.mark.parametrize("lake", [over_postgresql, over_rest], indirect=True)
def test_a_catalog_that_dies_in_the_middle_of_a_commit_ends_the_query_by_name_and_the_next_one_is_exact(
    lake: Lake, tmp_path: Path
) -> None:
    ends_by_name_and_goes_on(lake, dies, tmp_path / "about-to-commit")


@pytest.mark.parametrize("lake", [over_rest], indirect=True)
def test_a_catalog_that_hangs_in_the_middle_of_a_commit_ends_the_query_by_name_and_the_next_one_is_exact(
    lake: Lake, tmp_path: Path
) -> None:
    """The same of PostgreSQL is tried without Spark: there the patience is two minutes."""
    ends_by_name_and_goes_on(lake, hangs, tmp_path / "about-to-commit")


def ends_by_name_and_goes_on(
    lake: Lake, outage: Callable[[Postgres | RestReference], Callable[[], None]], here: Path
) -> None:
    lake.stream.add_files(0, FILES)
    with lake.stream.driver(f"before-call@1=pause:{here}") as driver:
        wait_for(here, driver)
        comes_back = outage(lake.server)
        here.unlink()
        assert driver.wait(240) == 1
    assert "[LAKESINK_COMMIT_" in lake.stream.log()
    comes_back()
    assert lake.stream.run() == 0
    assert lake.rows() == expected(range(FILES))
    assert [batch for batch, _, _ in own_snapshots(lake.load())] == list(range(FILES))
    # What hung may carry out the commit when it goes on.
    assert re.search(r"batch\.(recovered|already-committed) .*batch=1 ", lake.stream.log())
    assert PASSWORD not in lake.stream.log()


@pytest.mark.parametrize("lake", [over_postgresql, over_rest], indirect=True)
def test_a_catalog_that_is_back_at_once_costs_the_stream_nothing(lake: Lake, tmp_path: Path) -> None:
    lake.stream.add_files(0, FILES)
    here = tmp_path / "about-to-commit"
    with lake.stream.driver(f"before-call@1=pause:{here}") as driver:
        wait_for(here, driver)
        dies(lake.server)()
        here.unlink()
        assert driver.wait(240) == 0
    assert lake.rows() == expected(range(FILES))
