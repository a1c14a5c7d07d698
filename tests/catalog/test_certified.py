"""What "certified" means: on each such catalog rival writers commit at once, and every batch is there once."""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, event, text

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import sinks
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_tools.past.records import history
from servers.postgres import Postgres
from testkit.batches import START_MS, Writer
from testkit.http_servers import Answer, error_answer, postgres
from testkit.rest_catalog import RestService, rest_catalog
from tests.catalog.conftest import PASSWORD

WRITERS, BATCHES = 3, 6


def test_rival_writers_each_commit_every_batch_once(properties: dict[str, Any], tmp_path: Path) -> None:
    catalog = connect(tmp_path.name, properties)
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    failures: list[BaseException] = []

    def write(sink: str) -> None:
        try:
            writer = Writer(connect(tmp_path.name, properties), sink=sink, query=sink, clock=itertools.count(START_MS))
            for batch_id in range(BATCHES):
                writer.commit(batch_id)
                assert isinstance(writer.commit(batch_id), AlreadyCommitted)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=write, args=(f"sink{number}",)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    table = load_table(catalog, "demo.events")
    for state in sinks(table):
        records = history(table, sink=state.sink)
        assert [record.batch_id for record in records] == list(range(BATCHES))
        assert (state.batch_id, state.rows, state.trouble) == (BATCHES - 1, 10 * BATCHES, None)
    assert len(sinks(table)) == WRITERS
    head = table.metadata.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-records"] == str(10 * BATCHES * WRITERS)


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Writer, RestService]]:
    """The client's patience ends where that is the point, and nowhere else."""
    silent = request.node.callspec.params["fault"] == "never answers"
    local = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    with rest_catalog(connect("backing", local)) as (uri, service):
        catalog = connect(
            "rest", {"type": "rest", "uri": uri, "lakesink.http-timeout-seconds": "5" if silent else "60"}
        )
        create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
        writer = Writer(catalog)
        writer.commit(0)
        yield writer, service


FAULTS: dict[str, Answer] = {
    "never answers": None,
    "200 and not JSON": (200, b"<html>a proxy's page"),
    "200 and cut": (200, b'{"metadata-location": "file:///'),
} | {str(status): error_answer(status, "X") for status in (400, 401, 403, 404, 409, 419, 429, 500, 502, 503, 504)}
RESENT = ("401", "419")  # PyIceberg refreshes its token and sends the request once more, by itself


@pytest.mark.parametrize(
    ("fault", "landed"),
    [
        pytest.param(
            fault,
            landed,
            id=f"{fault}-{'applied' if landed else 'not applied'}",
            marks=pytest.mark.nightly if fault == "never answers" and not landed else (),
        )
        for fault in FAULTS
        for landed in (False, True)
    ],
)
def test_whatever_a_rest_catalog_answers_the_batch_lands_once(
    service: tuple[Writer, RestService],
    fault: str,
    landed: bool,  # noqa: FBT001 - a table of cases
) -> None:
    writer, rest = service
    (rest.after if landed else rest.before).append(lambda: FAULTS[fault])
    outcome = writer.commit(1)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == (1 if fault in RESENT and not landed else 2)
    assert rest.commits == 2
    records = history(writer.load())
    assert [record.batch_id for record in records] == [0, 1]
    assert records[-1].snapshot_id == outcome.snapshot_id


@contextmanager
def once_logged(start: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something when lakesink logs a line that starts so."""

    class Acting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith(start):
                act()

    handler = Acting()
    logging.getLogger("lakesink").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("lakesink").removeHandler(handler)


def test_a_rival_that_sleeps_inside_its_transaction_holds_nobody_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was stopped between its UPDATE and its COMMIT keeps the row locked, and its connection alive."""
    monkeypatch.setattr("lakesink_catalog.connect.sql_waits.LOCK_SECONDS", 1)
    with postgres(PASSWORD) as server:
        uri = f"postgresql://lake:p%40ss%2Fw%3Ard@{server.address}"
        catalog = connect("pg", {"uri": uri, "warehouse": f"file://{tmp_path}/w"})
        create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
        writer = Writer(catalog)
        writer.commit(0)
        sleeper = create_engine(uri.replace("://", "+psycopg2://")).connect()
        sleeper.execute(text("SELECT * FROM iceberg_tables FOR UPDATE"))
        with once_logged("lakesink.commit.unknown batch=1 attempt=1", sleeper.close):
            outcome = writer.commit(1)
        assert isinstance(outcome, Committed)
        assert outcome.attempts > 1
        assert [record.batch_id for record in history(writer.load())] == [0, 1]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[tuple[Writer, Postgres]]:
    with postgres(PASSWORD) as server:
        uri = f"postgresql://lake:p%40ss%2Fw%3Ard@{server.address}?connect_timeout=10"
        catalog = connect("pg", {"uri": uri, "warehouse": f"file://{tmp_path}/w"})
        create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
        writer = Writer(catalog)
        writer.commit(0)
        yield writer, server


def test_a_database_that_falls_silent_in_a_commit_is_asked_again_and_the_batch_lands_once(
    database: tuple[Writer, Postgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is alive and acknowledges packets, so that no time-out of TCP ends the wait."""
    monkeypatch.setattr("lakesink_catalog.connect.sql_waits.SILENT_SECONDS", 5.0)
    writer, server = database
    updates = itertools.count()

    def pause(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE iceberg_tables") and next(updates) == 0:
            server.pause()

    event.listen(writer.catalog.engine, "before_cursor_execute", pause)  # type: ignore[attr-defined] # SqlCatalog's
    with once_logged("lakesink.commit.unknown batch=1 attempt=1", server.resume):
        outcome = writer.commit(1)
    assert isinstance(outcome, Committed)
    assert outcome.attempts > 1
    assert [record.batch_id for record in history(writer.load())] == [0, 1]


@pytest.mark.nightly
def test_a_database_that_stays_silent_ends_in_a_clear_error(
    database: tuple[Writer, Postgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakesink_catalog.connect.sql_waits.SILENT_SECONDS", 5.0)
    writer, server = database
    server.pause()
    goes_on = threading.Timer(60, server.resume)
    goes_on.start()
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE") as refused:
        writer.load()
    goes_on.cancel()
    assert PASSWORD not in str(refused.value)
    server.resume()


def test_a_database_that_was_killed_and_came_back_takes_the_next_batch(database: tuple[Writer, Postgres]) -> None:
    writer, server = database
    server.kill()
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE"):
        writer.load()
    server.start()
    assert isinstance(writer.commit(1), Committed)
    assert [record.batch_id for record in history(writer.load())] == [0, 1]
