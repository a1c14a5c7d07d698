"""Replayed dead letters reach the readers of their table. Each row is read once, also after rollbacks."""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink.read.begin import AtBatch, AtTime, Begin, beginning
from lakesink.read.follow import newest_position, unread_batches
from lakesink.read.position import Position, parse_offset
from lakesink.read.steps import SinkBatches, behind, up_to
from lakesink.spark.source.source_readers import BatchesReader, Loaded, read_settings
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import stream_batch
from lakesink_tools.operate.outbox.position import Outbox, check_standing
from lakesink_tools.past.batch_input import Known
from lakesink_tools.past.lineage import Lineage
from testkit.bronze import LETTERS, SCHEMA, Bronze
from testkit.builders import ROWS, TABLE, Lake, Stream
from testkit.examples import seeds
from testkit.maintenance import expire, roll_back, set_property
from tests.read.consumer import EVENTS, Consumer

Ids = set[tuple[int, int]]


def of(batch: int, *positions: int) -> Ids:
    return {(batch, position) for position in positions}


@pytest.fixture
def bronze(tmp_path: Path) -> Bronze:
    return Bronze.make(tmp_path)


@pytest.fixture
def consumer(bronze: Bronze) -> Consumer:
    return Consumer(bronze.lake)


def ids(consumer: Consumer) -> Ids:
    """What it has read, each row once."""
    assert set(consumer.rows.values()) <= {1}
    return set(consumer.rows)


def titles(consumer: Consumer) -> list[str]:
    start, table = consumer.position, consumer.lake.table()
    start = start or consumer.sink.beginning(TABLE, str(table.metadata.table_uuid))
    return [batch.title for batch in unread_batches(table, TABLE, consumer.sink, start)[1].batches]


def test_a_replay_is_read_where_its_commit_stands(bronze: Bronze, consumer: Consumer) -> None:
    bronze.run(0)
    consumer.poll()
    bronze.run(1)
    bronze.replay()
    bronze.run(2)
    bronze.replay()
    assert titles(consumer) == ["batch 1", "replay 1", "batch 2", "replay 2"]
    consumer.poll()
    assert ids(consumer) == of(0, 0, 1, 2) | of(1, 0, 1, 2) | of(2, 0, 1, 2)
    assert titles(consumer) == []
    late = Consumer(bronze.lake)
    late.poll()
    assert late.rows == consumer.rows


def test_a_replay_alone_is_read_and_the_position_tells_it(bronze: Bronze, consumer: Consumer) -> None:
    bronze.run(0)
    consumer.poll()
    bronze.replay()
    assert consumer.poll() == [1]
    assert consumer.position is not None
    offset = consumer.position.to_offset()
    assert [number for number, _ in offset["replays"].values()] == [1]
    assert parse_offset(offset) == consumer.position
    assert consumer.poll() == []
    assert ids(consumer) == of(0, 0, 1, 2)


@pytest.mark.parametrize("told", [[1], [1, 2], ["1", "x"], [0, "x"], [True, "x"], {"1": "x"}, "x", None])
def test_an_offset_whose_replays_are_malformed_is_refused(bronze: Bronze, consumer: Consumer, told: Any) -> None:
    bronze.run(0)
    consumer.poll()
    assert consumer.position is not None
    for replays in ({"a": told}, told):
        if replays != {}:
            with pytest.raises(Exception, match="READ_OFFSET_UNREADABLE"):
                parse_offset({**consumer.position.to_offset(), "replays": replays})


def test_letters_of_two_sinks_are_replayed_apart_and_each_reader_gets_its_own(tmp_path: Path) -> None:
    first = Bronze.make(tmp_path)
    second = replace(first, sink_id="other", adds=10)
    readers = Consumer(first.lake), Consumer(first.lake, SinkBatches("other", "main"))
    first.run(0, letters=2)
    second.run(0, letters=3)
    assert first.replay() == 5
    for reader in readers:
        reader.poll()
    assert ids(readers[0]) == of(0, 0, 1, 2, 3)
    assert ids(readers[1]) == of(10, 0, 1, 2, 3, 4)


@pytest.mark.parametrize("back_to", range(4), ids=["batch 0", "batch 1", "replay 1", "batch 2"])
@pytest.mark.parametrize("replay_first", [False, True])
def test_a_replay_that_was_rolled_back_and_made_again_is_not_read_again(
    bronze: Bronze,
    consumer: Consumer,
    back_to: int,
    replay_first: bool,  # noqa: FBT001 - a case
) -> None:
    heads = []
    for number in range(2):
        bronze.run(number)
        heads.append(bronze.head())
    bronze.replay()
    heads.append(bronze.head())
    bronze.run(2, letters=0)
    heads.append(bronze.head())
    bronze.run(3, letters=0)
    consumer.poll()
    roll_back(bronze.lake, heads[back_to])
    again = [1, 2, 3][min(back_to, 1) if back_to < 3 else 2 :]
    if replay_first and back_to == 1:
        bronze.replay()
    for number in again:
        bronze.run(number, letters=int(number < 2))
        consumer.poll()
    bronze.replay()
    bronze.run(4)
    consumer.poll()
    assert bronze.replay() == 1
    consumer.poll()
    assert ids(consumer) == of(0, 0, 1, 2) | of(1, 0, 1, 2) | of(2, 0, 1) | of(3, 0, 1) | of(4, 0, 1, 2)


def test_a_replay_moved_before_the_batch_that_was_read_is_read(bronze: Bronze, consumer: Consumer) -> None:
    bronze.run(0)
    back_to = bronze.head()
    bronze.run(1, letters=0)
    consumer.poll()
    roll_back(bronze.lake, back_to)
    bronze.replay()
    bronze.run(1, letters=0)
    bronze.run(2, letters=0)
    assert titles(consumer) == ["replay 1", "batch 2"]
    consumer.poll()
    assert ids(consumer) == of(0, 0, 1, 2) | of(1, 0, 1) | of(2, 0, 1)


@pytest.mark.parametrize("letters_before", [1, 0], ids=["letters rolled back", "letters dropped"])
def test_letters_that_were_replayed_otherwise_after_a_rollback_are_refused(
    bronze: Bronze, consumer: Consumer, letters_before: int
) -> None:
    bronze.run(0, letters_before)
    before = bronze.heads()
    bronze.run(1, letters=2)
    bronze.replay(wanted=lambda one: one == (1, 2))
    consumer.poll()
    bronze.go_back(before)
    bronze.run(1, letters=2)
    consumer.poll()
    bronze.replay(wanted=lambda one: one[0] == 1)
    with pytest.raises(CatalogError, match=r"READ_BATCH_CHANGED.*Replay 1 of dead letters") as refused:
        consumer.poll()
    assert "--to-batch -1" in refused.value.action


def test_what_was_planned_is_read_as_it_was_planned(bronze: Bronze, consumer: Consumer) -> None:
    bronze.run(0)
    back_to = bronze.head()
    start = beginning(bronze.lake.table(), TABLE, EVENTS, Begin.EARLIEST)
    bronze.replay()
    end = newest_position(bronze.lake.table(), TABLE, EVENTS)
    roll_back(bronze.lake, back_to)
    with pytest.raises(CatalogError, match=r"READ_ROLLED_BACK.*Replay 1 of dead letters"):
        consumer.read(start, end)
    bronze.run(1)
    bronze.replay()
    consumer.read(start, end)
    assert ids(consumer) == of(0, 0, 1, 2)
    consumer.position = end
    consumer.poll()
    assert ids(consumer) == of(0, 0, 1, 2) | of(1, 0, 1, 2)


def test_a_new_reader_begins_behind_the_replays_before_its_beginning(bronze: Bronze) -> None:
    bronze.run(0)
    bronze.replay()
    bronze.run(1)
    time_ms = bronze.lake.head().timestamp_ms
    bronze.replay()
    table = bronze.lake.table()
    late = [beginning(table, TABLE, EVENTS, begin) for begin in (AtBatch(1), AtTime(time_ms))]
    for position in late:
        consumer = Consumer(bronze.lake, position=position)
        assert titles(consumer) == ["batch 1", "replay 2"]
        consumer.poll()
        assert ids(consumer) == of(1, 0, 1, 2)
    for position in (beginning(table, TABLE, EVENTS, Begin.LATEST), newest_position(table, TABLE, EVENTS)):
        assert titles(Consumer(bronze.lake, position=position)) == []


def test_a_table_made_anew_with_the_properties_of_another_has_none_of_its_batches(bronze: Bronze) -> None:
    bronze.run(0)
    bronze.replay()
    old = bronze.lake.table()
    old.catalog.drop_table(TABLE)
    old.catalog.create_table(TABLE, old.schema(), properties=old.properties)
    position = newest_position(bronze.lake.table(), TABLE, EVENTS)
    assert (position.is_before_all, position.replays) == (True, ())


def test_a_position_that_names_no_replay_reads_on(bronze: Bronze, consumer: Consumer) -> None:
    bronze.run(0)
    bronze.replay()
    bronze.run(1)
    consumer.poll()
    assert consumer.position is not None
    consumer.position = replace(consumer.position, replays=())
    consumer.rows.clear()
    bronze.replay()
    bronze.run(2, letters=0)
    consumer.poll()
    assert ids(consumer) == of(1, 2) | of(2, 0, 1)


def test_an_outbox_stops_by_name_if_a_replay_that_it_produced_is_rolled_back(bronze: Bronze) -> None:
    bronze.run(0)
    back_to = bronze.head()
    bronze.replay()
    position = newest_position(bronze.lake.table(), TABLE, EVENTS)
    outbox = Outbox("outbox", TABLE, EVENTS)

    def standing() -> None:
        past, found = unread_batches(bronze.lake.table(), TABLE, EVENTS, position, changes=True)
        check_standing(past, found, position, outbox)

    standing()
    roll_back(bronze.lake, back_to)
    with pytest.raises(CatalogError, match=r"READ_ROLLED_BACK.*Replay 1 of dead letters of sink 'events' was produced"):
        standing()
    bronze.replay()
    standing()


def test_replays_of_two_sinks_in_another_order_after_a_rollback_are_not_read_twice(
    bronze: Bronze, consumer: Consumer
) -> None:
    other = replace(bronze, sink_id="other", adds=10)
    bronze.run(0)
    other.run(0)
    before = bronze.heads()
    bronze.replay(wanted=lambda one: one[0] == 0)
    consumer.poll()
    bronze.go_back(before)
    bronze.replay(wanted=lambda one: one[0] == 10)
    bronze.replay(wanted=lambda one: one[0] == 0)
    consumer.poll()
    assert ids(consumer) == of(0, 0, 1, 2)


def test_letters_of_several_replays_that_come_back_in_one_are_refused(bronze: Bronze, consumer: Consumer) -> None:
    for number in range(3):
        bronze.run(number)
    before = bronze.heads()
    bronze.replay(wanted=lambda one: one[0] == 0)
    bronze.replay(wanted=lambda one: one[0] == 1)
    consumer.poll()
    bronze.go_back(before)
    bronze.replay()
    with pytest.raises(CatalogError, match=r"READ_BATCH_CHANGED.*Replay 1 of dead letters"):
        consumer.poll()


def test_what_was_read_before_a_rollback_does_not_stop_later_batches(bronze: Bronze, consumer: Consumer) -> None:
    bronze.run(0)
    back_to = bronze.head()
    bronze.replay()
    consumer.poll()
    roll_back(bronze.lake, back_to)
    bronze.run(1, letters=0)
    assert consumer.poll() == [1]
    assert ids(consumer) == of(0, 0, 1, 2) | of(1, 0, 1)


def test_a_reader_does_not_wait_for_replays_of_another_sink_or_of_one_that_was_forgotten(
    bronze: Bronze, consumer: Consumer
) -> None:
    other = replace(bronze, sink_id="other", adds=10)
    bronze.run(0)
    bronze.replay()
    consumer.poll()
    other.run(0)
    back_to = bronze.head()
    bronze.replay()
    roll_back(bronze.lake, back_to)
    bronze.run(1, letters=0)
    end = newest_position(bronze.lake.table(), TABLE, EVENTS)
    assert consumer.position is not None
    assert len(consumer.read(consumer.position, end)) == 1
    for name in bronze.lake.table().properties:
        if "dead-letters.replay." in name:
            set_property(bronze.lake, name, None)
    assert unread_batches(bronze.lake.table(), TABLE, EVENTS, end)[1].lost_replay == 0


def test_a_replay_that_took_rows_away_is_refused(tmp_path: Path) -> None:
    bronze = Bronze(Lake.make(tmp_path, schema=Schema(*SCHEMA.fields, identifier_field_ids=[1])))
    consumer = Consumer(bronze.lake)
    bronze.run(0)
    bronze.replay(mode="upsert", keys=["batch"], sequence_by="position")
    assert consumer.poll() == [0]
    with pytest.raises(CatalogError, match="READ_ROWS_REMOVED"):
        consumer.poll()


def test_spark_4_1_can_begin_after_a_replay_was_rolled_back_but_not_go_back_behind_one_that_it_read(
    bronze: Bronze, consumer: Consumer
) -> None:
    bronze.run(0)
    back_to = bronze.head()
    bronze.replay()
    consumer.poll()
    roll_back(bronze.lake, back_to)
    bronze.run(1, letters=0)
    table = bronze.lake.table()
    end = newest_position(table, TABLE, EVENTS)
    Consumer(bronze.lake).read(beginning(table, TABLE, EVENTS, Begin.EARLIEST), end)
    assert consumer.position is not None
    with pytest.raises(CatalogError, match=r"READ_ROLLED_BACK.*Replay 1 of dead letters was read"):
        consumer.read(consumer.position, end)


def test_a_first_plan_whose_replay_was_rolled_back_is_not_told_as_a_moved_beginning(bronze: Bronze) -> None:
    bronze.run(0)
    back_to = bronze.head()
    bronze.replay()
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{bronze.lake.folder}/catalog.db"}
    query = BatchesReader(read_settings(catalog | {"catalog": "test", "table": TABLE}), Loaded(EVENTS, "{}"))
    end, start = query.latestOffset(), query.initialOffset()
    roll_back(bronze.lake, back_to)
    bronze.run(1, letters=0)
    with pytest.raises(CatalogError, match=r"READ_ROLLED_BACK.*Replay 1 of dead letters was to be read"):
        query.partitions(start, end)


def test_a_replay_that_expired_is_not_lost_if_a_later_one_was_rolled_back(bronze: Bronze, consumer: Consumer) -> None:
    for number in range(2):
        bronze.run(number)
    bronze.replay(wanted=lambda one: one[0] == 0)
    consumer.poll()
    bronze.run(2, letters=0)
    back_to = bronze.head()
    bronze.replay(wanted=lambda one: one[0] == 1)
    roll_back(bronze.lake, back_to)
    bronze.run(3, letters=0)
    expire(bronze.lake)
    assert consumer.position is not None
    assert unread_batches(bronze.lake.table(), TABLE, EVENTS, consumer.position)[1].lost_replay == 0


def test_the_lineage_of_a_replay_goes_through_its_letters_to_their_batches(bronze: Bronze) -> None:
    for number in range(3):
        bronze.run(number)
    bronze.replay(wanted=lambda one: one[0] != 1)
    silver = replace(bronze.lake, name="demo.silver")
    silver.create()
    end = newest_position(bronze.lake.table(), TABLE, EVENTS).to_offset()
    Stream(silver, "silver").run(stream_batch(0, "query-of-silver-main", start=None, end=[end]))
    hops = list(Lineage(bronze.lake.catalog).of("demo.silver", 0, None, "main").hops())
    assert [(hop.table, hop.run[0].batch_id, hop.run[-1].batch_id) for hop in hops if hop.table != TABLE] == [
        ("demo.silver", 0, 0),
        (LETTERS, 0, 0),
        (LETTERS, 2, 2),
    ]
    [replay] = [hop for hop in hops if hop.known is Known.LETTERS]
    assert replay.rows == 2
    assert sorted(hop.run[0].batch_id for hop in replay.hops() if hop.table == TABLE and hop is not replay) == [0, 2]


@dataclass
class _Reader:
    """A reading query: restarted at any time, with Spark 4.1's way to plan and with that of later versions.

    Attributes:
        has_ended: It was told that letters which it has read were replayed otherwise.
    """

    bronze: Bronze
    plans_to_newest: bool
    rows: "Counter[tuple[int, int]]" = field(default_factory=Counter)
    position: Position | None = None
    has_ended: bool = False

    def micro_batch(self, chance: Random) -> None:
        table = self.bronze.lake.table()
        start = self.position or EVENTS.beginning(TABLE, str(table.metadata.table_uuid))
        try:
            end = self._end(table, start, chance)
            consumer = Consumer(self.bronze.lake)
            consumer.read(start, end)
        except CatalogError as error:
            if error.code not in {"LAKESINK_READ_ROLLED_BACK", "LAKESINK_READ_BATCH_CHANGED"}:
                raise
            self.has_ended |= error.code == "LAKESINK_READ_BATCH_CHANGED"
            return
        self.rows += consumer.rows
        self.position = parse_offset(end.to_offset())

    def _end(self, table: Table, start: Position, chance: Random) -> Position:
        if self.plans_to_newest and chance.random() < 0.5:
            return newest_position(table, TABLE, EVENTS)
        past, found = unread_batches(table, TABLE, EVENTS, start)
        return behind(past, start, up_to(found.batches, chance.choice([1, 2, None]), None))


@dataclass
class _World:
    """A table with its stream, its replays, its operator and two readers, which act by chance."""

    bronze: Bronze
    chance: Random

    def __post_init__(self) -> None:
        self.letters = [1, *(self.chance.randrange(3) for _ in range(40))]
        self.readers = [_Reader(self.bronze, plans_to_newest=one) for one in (False, True)]
        self.heads: list[dict[str, int]] = []
        self.run()

    def run(self) -> None:
        self.bronze.run(len(self.heads), self.letters[len(self.heads)])
        self.heads.append(self.bronze.heads())

    def replay(self) -> None:
        self.bronze.replay_some(self.chance.random())

    def others(self) -> None:
        row = pa.Table.from_pylist([{"batch": -1, "position": 0, "written": 0}], schema=ROWS)
        self.bronze.lake.table().append(row.cast(self.bronze.lake.table().schema().as_arrow()))

    def replays_back(self) -> None:
        """Roll the table back behind its replays; their letters stay assigned."""
        roll_back(self.bronze.lake, self.heads[-1][TABLE])

    def all_back(self) -> None:
        """Sometimes, roll all tables back by some batches."""
        if self.chance.random() < 0.3:
            self.heads = self.heads[: max(1, len(self.heads) - self.chance.randrange(3))]
            self.bronze.go_back(self.heads[-1])

    def read(self) -> None:
        self.chance.choice(self.readers).micro_batch(self.chance)

    def end(self) -> None:
        for _ in range(3):
            self.run()
            self.bronze.replay()
            for reader in self.readers:
                for _ in range(8):
                    reader.micro_batch(self.chance)


@pytest.mark.parametrize("seed", seeds(6))
def test_whatever_happens_each_row_is_read_once(tmp_path: Path, seed: int) -> None:
    world = _World(Bronze.make(tmp_path), Random(seed))
    acts = [world.run, world.replay, world.replay, world.others, world.replays_back, world.all_back, *[world.read] * 3]
    for _ in range(20):
        world.chance.choice(acts)()
    world.end()
    wanted = {(batch, at) for batch in range(len(world.heads)) for at in range(2 + world.letters[batch])}
    found = world.bronze.lake.table().scan(row_filter="batch >= 0").to_arrow()
    assert Counter(zip(found["batch"].to_pylist(), found["position"].to_pylist(), strict=True)) == Counter(wanted)
    for reader in world.readers:
        assert reader.rows <= Counter(wanted) if reader.has_ended else reader.rows == Counter(wanted)
