"""An outbox has no checkpoint and no driver, and its errors say what its topic has."""

from pathlib import Path

import pytest

from lakesink.read import reading_errors as refusals
from lakesink.read.follow import past_of
from lakesink.read.position import Position
from lakesink.read.steps import SinkBatches, Why
from lakesink.sinks.kafka.clients import Clients
from lakesink.sinks.kafka.failures import kafka_failures
from lakesink_protocol.errors import CatalogError, CommitUnresolved, LakesinkError, SettingsError
from lakesink_tools.operate.outbox.words import TOPIC, Words
from testkit.builders import TABLE, Lake, Stream

SINK = SinkBatches("events", "main")
POSITION = Position(TABLE, "uuid", "main", "events", "query", 3)


def errors_of_reading(folder: Path) -> list[LakesinkError]:
    stream = Stream(Lake.make(folder))
    stream.run(0)
    past = past_of(stream.lake.table(), TABLE, SINK, None)
    [batch] = past.commits
    lost = [refusals.position_lost(past, SINK, POSITION, why) for why in Why]
    gone, removed = refusals.batch_gone(TABLE, batch, 0), refusals.rows_taken_away(past, SINK, batch)
    other = (
        CatalogError.of("TABLE_REPLACED.to_read", table=TABLE, table_uuid="new", known_uuid=POSITION.table_uuid),
        SettingsError.of("SINK_AMBIGUOUS", branch="main", table=TABLE, sinks="a, b"),
    )
    return [*lost, gone, *other, refusals.batch_unknown(past, SINK, 7, [batch]), removed]


def test_no_error_of_reading_speaks_of_a_checkpoint(tmp_path: Path) -> None:
    *errors, of_its_own_batch = errors_of_reading(tmp_path)
    for error in errors:
        text = str(Words("orders-out").of(error))
        assert error.code in text
        for word in ("checkpoint", "the query has read", "option starting-batch", "sink-id", "latest"):
            assert word not in text, text
    assert Words("orders-out").of(of_its_own_batch) is of_its_own_batch, "an outbox shows batches that deleted rows"


def test_an_error_of_kafka_says_what_the_topic_has() -> None:
    clients = Clients.parse("broker:9092", {})
    with pytest.raises(LakesinkError) as caught, kafka_failures(clients):
        raise TimeoutError("nobody answered")
    said = Words("orders-out").of(caught.value)
    assert (said.code, said.data) == ("LAKESINK_KAFKA_UNREACHABLE", TOPIC)
    assert "this machine reaches broker:9092" in said.action


def test_an_unknown_outcome_stays_unknown_and_names_the_batch_of_the_table() -> None:
    what = "The commit of batch 3 of sink 'orders-out' is not in the ledger topic after attempt 9."
    error = CommitUnresolved("COMMIT_UNRESOLVED", what, data="The batch is prepared. Perhaps.", action="Start again.")
    said = Words("orders-out", 7, "batch 7").of(error)
    assert type(said) is CommitUnresolved
    assert said.what == "The commit of batch 7 of outbox 'orders-out' is not in the ledger topic after attempt 9."
    assert said.data == "Perhaps."
    assert "start the outbox again" in said.action
