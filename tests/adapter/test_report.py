"""The first batch of a run is reported with the facts that weaken its guarantee."""

from lakesink.checkpoint.query_facts import Functions, QueryFacts, Replay, Source
from lakesink.spark.report import Reporter
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import WriteError


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
