"""The first batch of a run is reported with the facts that weaken its guarantee, and its end when it comes."""

import subprocess
import sys
import threading
from typing import Any, cast

import pytest

from lakesink.checkpoint.query_facts import Functions, QueryFacts, Replay, Source
from lakesink.observe.metrics import UNREAD, Numbers
from lakesink.spark.query import RunningQuery
from lakesink.spark.report import Reporter, report_end
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import WriteError
from tests.adapter.test_progressed import KAFKA


def reported(*, uncommitted: bool, scheme: str) -> list[events.Event]:
    told: list[events.Event] = []
    source = Source("KafkaV2", Replay.YES, uncommitted)
    facts = QueryFacts(
        lakesink="0.2.0",
        query_id="q1",
        sink="events",
        table="demo.events",
        sources=(source,),
        functions=Functions(),
        output_mode="append",
        speculation=False,
        scheme=scheme,
        file_manager="",
    )
    Reporter("demo.events", "events", LISTENERS.also(told.append)).started(0, facts)
    return told


def test_a_source_that_reads_uncommitted_records_is_an_event_of_its_own() -> None:
    [_, second] = reported(uncommitted=True, scheme="file")
    assert second == events.SourceReadsUncommitted("demo.events", "events", "q1")
    assert len(reported(uncommitted=False, scheme="file")) == 1


def test_a_checkpoint_without_atomic_files_weakens_a_start() -> None:
    [weakened] = reported(uncommitted=False, scheme="s3a")
    assert isinstance(weakened, events.QueryStarted)
    assert (weakened.is_weakened, weakened.checkpoint) == (True, "s3a (not atomic)")
    [whole] = reported(uncommitted=False, scheme="file")
    assert isinstance(whole, events.QueryStarted)
    assert (whole.is_weakened, whole.checkpoint) == (False, "file")


def test_the_lines_of_a_failure_are_what_a_person_has_to_copy() -> None:
    """They are not masked as settings are: a topic or a column can be named like a secret."""
    told: list[events.Event] = []
    rest = ('  Do: start where these batches end: [{"token-events":{"0":5}}]', "  - column access_token: INT expected")
    Reporter("demo.events", "events", LISTENERS.also(told.append)).failed(
        3, WriteError("VALUE_MALFORMED", "2 rows.", action="Correct them."), 0.5, rest=rest
    )
    [failed] = told
    assert isinstance(failed, events.BatchFailed)
    assert failed.rest == rest


class EndedQuery:
    """A query that has ended, and counts how often it is asked for its progress."""

    query_id = "q1"

    def __init__(self, *, failed: bool = False) -> None:
        self.asked, self.failed = 0, failed

    def has_failed(self) -> bool:
        return self.failed

    def has_ended(self) -> bool:
        return True

    def progress(self) -> list[dict[str, Any]]:
        self.asked += 1
        return [KAFKA]


@pytest.mark.parametrize("counts", [True, False])
def test_spark_is_asked_for_the_progress_of_a_query_only_if_somebody_counts(*, counts: bool) -> None:
    numbers, query, ended = Numbers(), EndedQuery(), threading.Event()
    listeners = LISTENERS.also(numbers.stream("demo.events", "events", "main")) if counts else LISTENERS
    emit = listeners.also(lambda event: ended.set() if isinstance(event, events.QueryEnded) else None)
    report_end(cast("RunningQuery", query), Reporter("demo.events", "events", emit))
    assert ended.wait(60)
    assert query.asked == counts
    assert list(dict(numbers.read(UNREAD)).values()) == ([7] if counts else [])


@pytest.mark.parametrize("failed", [True, False])
def test_the_target_is_maintained_at_the_end_of_a_query_that_has_not_failed(*, failed: bool) -> None:
    told, ended = list[str](), threading.Event()

    def listen(_: events.Event) -> None:
        told.append("ended")
        ended.set()

    reporter = Reporter("demo.events", "events", LISTENERS.also(listen))
    report_end(cast("RunningQuery", EndedQuery(failed=failed)), reporter, lambda: told.append("maintained"))
    assert ended.wait(60)
    assert told == ["ended"] if failed else ["maintained", "ended"]


def test_a_process_does_not_end_before_the_maintenance_and_its_threads_can_start() -> None:
    program = """
import time
from concurrent.futures import ThreadPoolExecutor
from lakesink.spark.report import Reporter, report_end
from tests.adapter.test_report import EndedQuery

def maintain():
    time.sleep(0.5)
    with ThreadPoolExecutor(2) as pool:
        print(*pool.map(str, range(3)))

report_end(EndedQuery(), Reporter("demo.events", "events"), maintain)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "0 1 2\n", found.stderr
