"""An answer that a catalog repeats for half a minute is a refusal; an outage is waited out. The clock is the test's."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from lakesink_catalog.commit.outcomes import Repeated, is_final
from lakesink_catalog.connect.catalog import CatalogConfig, connect
from lakesink_protocol.errors import CatalogError, CommitUnresolved
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream, counted, expected, parquet_files
from testkit.http_servers import Answer, error_answer
from testkit.rest_catalog import Fault, RestService, rest_catalog

TEXT = "Unknown requirement assert-nothing"
RETRIES = 20


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    return lake


@pytest.fixture
def served(lake: Lake) -> Iterator[tuple[RestService, Catalog]]:
    with rest_catalog(connect("test", {"uri": f"sqlite:///{lake.folder}/catalog.db"})) as (uri, service):
        yield service, CatalogConfig("rest", {"type": "rest", "uri": uri}).open()


@pytest.fixture
def service(served: tuple[RestService, Catalog]) -> RestService:
    return served[0]


@pytest.fixture
def client(served: tuple[RestService, Catalog]) -> Catalog:
    return served[1]


def says(status: int, text: str = TEXT) -> Fault:
    return lambda: error_answer(status, "IllegalArgumentException", text)


def unresolved(stream: Stream, batch_id: int = 1) -> CommitUnresolved:
    with pytest.raises(CommitUnresolved) as error:
        stream.run(batch_id)
    return error.value


@pytest.mark.parametrize("status", [500, 501])
def test_the_same_error_of_the_server_for_half_a_minute_ends_the_retries_with_its_text(
    lake: Lake, service: RestService, client: Catalog, status: int
) -> None:
    stream = Stream(lake, catalog=client)
    service.before = [says(status)] * RETRIES
    error = unresolved(stream)
    assert error.code == "LAKESINK_COMMIT_UNRESOLVED"
    assert TEXT in error.data
    assert "while the table stayed as it was" in error.data
    assert "Nothing was deleted" in error.data
    assert error.action.startswith("This may be no outage: correct what the answer says")
    asked = RETRIES - len(service.before)
    assert 3 <= asked < RETRIES
    assert sum(stream.chance.waited_ms[: asked - 1]) >= 30_000
    files = parquet_files(lake)
    service.before = []
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert parquet_files(lake) == files
    assert counted(lake) == expected(0, 1)


@pytest.mark.parametrize("status", [502, 503, 504, 429])
def test_an_outage_is_waited_out_however_often_its_text_comes(
    lake: Lake, service: RestService, client: Catalog, status: int
) -> None:
    stream = Stream(lake, catalog=client)
    service.before = [says(status)] * RETRIES
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == RETRIES + 1
    service.before = [says(status)] * (RETRIES + 1)
    assert unresolved(stream, 2).action.startswith("Make the catalog reachable")
    assert service.before == []


@pytest.mark.parametrize("other", [says(500, "another text"), says(503), None], ids=["text", "status", "moved"])
def test_an_answer_in_between_or_a_table_that_moves_is_no_repetition(
    lake: Lake, service: RestService, client: Catalog, other: Fault | None
) -> None:
    """Every second request meets something else: another answer, or a table that another writer has changed."""

    def moved() -> Answer:
        table = lake.table()
        with table.transaction() as change:
            change.set_properties({"seen": str(len(service.before))})
        return says(500)()

    stream = Stream(lake, catalog=client)
    service.before = [says(500), other or moved] * (RETRIES // 2)
    outcome = stream.run(1)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == RETRIES + 1


def test_a_batch_that_landed_under_such_an_answer_is_found_at_once(
    lake: Lake, service: RestService, client: Catalog
) -> None:
    service.after = [says(500)]
    outcome = Stream(lake, catalog=client).run(1)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == 2
    assert counted(lake) == expected(0, 1)


def test_every_answer_is_in_the_log(
    lake: Lake, service: RestService, client: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    service.before = [says(501)]
    with caplog.at_level(logging.WARNING):
        Stream(lake, catalog=client).run(1)
    [line] = [line for line in caplog.messages if line.startswith("lakesink.commit.unknown")]
    assert TEXT in line


@pytest.mark.parametrize(
    ("heard", "refused"),
    [
        ([(500, 0), (500, 10_000), (500, 30_000)], True),
        ([(501, 0), (501, 1), (501, 2), (501, 30_000)], True),
        ([(500, 0), (500, 30_000)], False),
        ([(500, 0), (500, 10_000), (500, 29_999)], False),
        ([(500, 0), (500, 10_000), (503, 20_000), (500, 30_000)], False),
        ([(500, 0), (503, 10_000), (500, 20_000), (500, 25_000), (500, 30_000)], False),
        ([(503, 0), (500, 10_000), (500, 20_000), (500, 40_000)], True),
        ([(None, 0), (None, 10_000), (None, 30_000)], False),
    ],
)
def test_three_equal_answers_over_half_a_minute_are_a_refusal(
    heard: list[tuple[int | None, int]],
    refused: bool,  # noqa: FBT001 - a case
) -> None:
    repeated = Repeated()
    for status, at_ms in heard:
        repeated.heard(status, TEXT, "v1.json", at_ms)
    assert repeated.is_refusal("v1.json") is refused
    assert not repeated.is_refusal("v2.json")


@pytest.mark.parametrize(
    ("code", "cause", "final"),
    [
        ("TABLE_MISSING", None, True),
        ("CATALOG_UNREACHABLE", TypeError("bug"), False),
        ("CATALOG_FAILED", None, False),
        ("CATALOG_FAILED", ConnectionError("reset"), False),
        ("CATALOG_FAILED", TypeError("bug"), True),
    ],
)
def test_an_error_of_a_service_is_final_only_if_it_is_one_of_the_program(
    code: str,
    cause: Exception | None,
    final: bool,  # noqa: FBT001 - a case
) -> None:
    error = CatalogError(code, "Something failed.", action="Look.")
    error.__cause__ = cause
    assert is_final(error) is final
    assert not is_final(cause or OSError("no error of lakesink"))
