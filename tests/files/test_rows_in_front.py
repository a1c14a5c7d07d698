"""Row features in front of a sink that writes to no table: what its readers and the dead letters have, by a dictionary.

Each batch is run again, and the driver dies between the commits of its participants.
"""

import itertools
import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import lakesink
from lakesink.api.stream_to import row_settings, stream_to
from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.settings.settings import Settings
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.sinks.iceberg.batch_plan import expected_of
from lakesink.sinks.iceberg.preflight import plan_in_front
from lakesink.sinks.iceberg.side.checked_sink import CheckedSink
from lakesink.sinks.iceberg.side.letters_table import puts_aside
from lakesink.sinks.kafka.staged_rows import RecordsWriter, decode_kafka
from lakesink.sinks.staged.parts import PartsWriter
from lakesink.task.task import ParquetTaskWriter
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import BatchRefused, SettingsError, WriteError
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.measures import DEAD_LETTERS, RESCUED_ROWS, UNMET_ROWS, Tally
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.quality import Quality
from lakesink_protocol.receipt import decode
from lakesink_protocol.two_phase import WriteAgain
from lakesink_protocol.votes import apart
from testkit.builders import Lake, offered
from testkit.deaths import Killed, answer_is_lost, dies_after, dies_before, until_it_lives
from testkit.directory import Stream
from testkit.letters import one_task
from tests.decode.avro.messages import encoded, message, record

Row = dict[str, Any]
Letters = Counter[tuple[int, str, str]]
LETTERS = "demo.letters"
RULES = ("", "warn", "quarantine", "fail")
MALFORMED = ("", "fail", "quarantine")
BATCHES: Sequence[Sequence[Row]] = (
    [{"id": 1, "amount": 10}, {"id": 2, "amount": -20}, {"id": 3, "amount": None}],
    [],
    [{"id": 4, "amount": 40}, {"id": 5, "amount": "?"}, {"id": 6, "amount": -60}],
    [{"id": 7, "amount": 70}],
)
COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.int32())])
PLAN = plan_in_front(SinkKey("orders"), Settings(), COLUMNS, case_sensitive=False)


@dataclass
class Driver:
    """A query into a directory. Each batch has a driver of its own, which remembers nothing.

    Attributes:
        rule: What happens to rows whose amount is not at least 0; empty for no expectation.
        malformed: What happens to documents that cannot be decoded; empty for rows that come with columns.
        accept: The word of an operator.
    """

    folder: Path
    rule: str = ""
    malformed: str = ""
    options: Row = field(default_factory=dict)
    accept: str | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.lake = Lake.make(self.folder)
        self.directory = Stream(self.folder / "out")

    def sink(self) -> CheckedSink:
        """The sink of a driver that has just started."""
        given: Row = {
            "sink_id": "clicks",
            "checkpoint": "/",
            "dead_letter_table": LETTERS,
            "max_dead_letter_ratio": 1.0,
        }
        if self.malformed:
            more = {"decode": "json", "schema": "id BIGINT NOT NULL, amount INT", "create_table": True}
            given |= more | {"on_malformed": self.malformed}
        if self.rule and self.malformed:
            given["expect"] = {"positive": ("amount >= 0", self.rule)}
        settings, columns = Settings.parse(given | self.options | {"accept": self.accept}), self.rows([]).schema
        aside = puts_aside(settings, expected_of(columns, settings))
        open_catalog = (lambda: self.lake.catalog) if aside else None
        of_rows = SinkKey("clicks"), settings, columns, open_catalog
        return CheckedSink(self.directory.sink(accept=self.accept), *of_rows, effects=self.directory.chance.effects())

    def rows(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as Spark gives them: with marks, or as documents."""
        if self.malformed:
            records = [{"value": json.dumps(row).encode()} for row in rows]
            return pa.Table.from_pylist(records, pa.schema([("value", pa.binary())]))
        found = pa.Table.from_pylist(list(rows), COLUMNS)
        if not self.rule:
            return found
        mark = Expected("positive", OnUnmet(self.rule)).mark
        return found.append_column(mark, pa.array([(row["amount"] or -1) >= 0 for row in rows], pa.bool_()))

    def take(self, batch_id: int, rows: Sequence[Row]) -> Outcome:
        sink = self.sink()
        return run_batch(self.directory.batch(batch_id), [sink], one_task(self.rows(rows)))[sink.name]

    def read(self) -> list[Row]:
        return read(self.directory.directory)

    def letters(self) -> Letters:
        return letters_in(self.lake.catalog) if self.lake.catalog.table_exists(LETTERS) else Counter()


def read(directory: Path) -> list[Row]:
    """What a reader of the directory sees."""
    paths = lakesink.committed_files(directory)
    if not paths:
        return []
    found: list[Row] = duckdb.read_parquet(paths, hive_partitioning=False).order("id").to_arrow_table().to_pylist()
    return found


def letters_in(catalog: Catalog) -> Letters:
    """Batch, reason and row of each dead letter."""
    found = load_table(catalog, LETTERS).scan().to_arrow().to_pylist()
    assert {row["sink"] for row in found} <= {"clicks"}
    return Counter((row["batch_id"], row["reason"], row["payload"]) for row in found)


@dataclass
class World:
    """What directory and dead letters must have, by plain Python."""

    rule: str
    malformed: str
    rows: list[Row] = field(default_factory=list)
    letters: Letters = field(default_factory=Counter)

    def apply(self, batch_id: int, rows: Sequence[Row]) -> str:
        """What a batch does; the code of the error with which it must fail, and then it does nothing."""
        faults = [self._fault(row) for row in rows]
        if "VALUE_MALFORMED" in faults and self.malformed == "fail":
            return "VALUE_MALFORMED"
        if "EXPECTATION_UNMET" in faults and self.rule == "fail":
            return "EXPECTATION_UNMET"
        for row, fault in zip(rows, faults, strict=True):
            if fault == "VALUE_MALFORMED" or (fault and self.rule == "quarantine"):
                text = json.dumps(row) if self.malformed else json.dumps(row, separators=(",", ":"))
                self.letters[batch_id, fault, text] += 1
            else:
                self.rows.append(row)
        return ""

    def _fault(self, row: Row) -> str:
        if row["amount"] == "?":
            return "VALUE_MALFORMED"
        return "EXPECTATION_UNMET" if self.rule and (row["amount"] or -1) < 0 else ""


def batches(malformed: str) -> list[list[Row]]:
    """The batches; a row with columns cannot be malformed."""
    return [[row for row in rows if malformed or row["amount"] != "?"] for rows in BATCHES]


CELLS = [(rule, malformed) for rule, malformed in itertools.product(RULES, MALFORMED) if rule or malformed]


@pytest.mark.parametrize(("rule", "malformed"), CELLS)
def test_each_row_is_in_the_directory_or_a_dead_letter_once(tmp_path: Path, rule: str, malformed: str) -> None:
    driver, world = Driver(tmp_path, rule, malformed), World(rule, malformed)
    for batch_id, rows in enumerate(batches(malformed)):
        before = len(world.rows), world.letters.total()
        code = world.apply(batch_id, rows)
        if code:
            with pytest.raises(WriteError, match=code):
                driver.take(batch_id, rows)
            break
        outcome = driver.take(batch_id, rows)
        assert isinstance(outcome, Committed)
        assert outcome.rows == len(world.rows) - before[0]
        assert outcome.quality.counts[DEAD_LETTERS] == world.letters.total() - before[1]
        assert isinstance(driver.take(batch_id, rows), AlreadyCommitted)
    assert driver.read() == world.rows
    assert driver.letters() == world.letters


def test_the_outcome_says_how_many_rows_did_not_meet_a_rule(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "warn")
    outcome = driver.take(0, BATCHES[0])
    assert isinstance(outcome, Committed)
    assert (outcome.quality.counts[UNMET_ROWS], dict(outcome.quality.unmet)) == (2, {"positive": 2})
    quiet = driver.take(1, [])
    assert isinstance(quiet, Committed)
    assert dict(quiet.quality.unmet) == {"positive": 0}


def test_a_refused_batch_leaves_no_part(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "fail")
    with pytest.raises(WriteError, match=r"2 of 3 rows of batch 0 do not meet the expectation positive"):
        driver.take(0, BATCHES[0])
    assert driver.directory.part_files() == []


def test_a_rescue_column_keeps_what_no_column_takes(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "warn", "fail", {"rescue_column": "rest"})
    outcome = driver.take(0, [{"id": 1, "amount": "?", "more": [7]}, {"id": 2, "amount": 20}])
    assert isinstance(outcome, Committed)
    assert outcome.quality.counts[RESCUED_ROWS] == 1
    [first, second] = driver.read()
    assert (first["id"], first["amount"]) == (1, None)
    assert json.loads(first["rest"]) == {
        "unknown": {"more": [7]},
        "unfit": {"amount": {"expected": "INT", "value": "?"}},
    }
    assert second == {"id": 2, "amount": 20, "rest": None}


def test_a_row_with_text_that_no_target_takes_is_put_aside(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"\xff", b"c"]).buffers())
    rows = pa.table({"id": [1, 2, 3], "text": broken})
    strict = Driver(tmp_path)
    with pytest.raises(WriteError, match=r"TEXT_INVALID"):
        run_batch(strict.directory.batch(0), [strict.sink()], one_task(rows))
    driver = Driver(tmp_path / "other", options={"on_malformed": "quarantine"})
    run_batch(driver.directory.batch(0), [driver.sink()], one_task(rows))
    assert driver.read() == [{"id": 1, "text": "a"}, {"id": 3, "text": "c"}]
    assert driver.letters() == {(0, "TEXT_INVALID", None): 1}


def test_rows_keep_columns_that_iceberg_does_not_have(tmp_path: Path) -> None:
    driver = Driver(tmp_path, options={"on_malformed": "quarantine"})
    rows = pa.table({"small": pa.array([1, None], pa.int8()), "parts": [{"at": [b"x"]}, None]})
    run_batch(driver.directory.batch(0), [driver.sink()], one_task(rows))
    [part] = lakesink.committed_files(driver.directory.directory)
    assert pq.read_table(part).equals(rows)


def test_avro_messages_become_columns_of_a_directory(tmp_path: Path) -> None:
    schema = record(("id", "long"), ("amount", ["null", "int"]))
    registry = tmp_path / "schemas.json"
    registry.write_text(json.dumps({"7": json.dumps(schema)}))
    driver = Driver(tmp_path, "quarantine", "quarantine", {"decode": "avro", "schema_registry": str(registry)})
    messages = [message(encoded(schema, row)) for row in ({"id": 1, "amount": 10}, {"id": 2, "amount": -20})]
    rows, sink = pa.table({"value": pa.array([*messages, b"?"], pa.binary())}), driver.sink()
    run_batch(driver.directory.batch(0), [sink], one_task(rows))
    assert driver.read() == [{"id": 1, "amount": 10}]
    assert sorted(reason for _, reason, _ in driver.letters()) == ["EXPECTATION_UNMET", "VALUE_MALFORMED"]


def test_records_for_a_topic_are_judged_and_have_no_marks(tmp_path: Path) -> None:
    of_topic = RecordsWriter(PartsWriter(str(tmp_path), "orders-7", 7, "lz4", 10**9), "orders", 10_000)
    rule = Expected("short", OnUnmet.WARN)
    rows = pa.record_batch({"value": ["a", "bb"], rule.mark: [True, False]})
    writer = ParquetTaskWriter(PLAN, (rule,), behind=of_topic)
    head, own = apart(writer.receipts("orders", writer.write(0, iter([rows])))["orders"], 2)
    assert decode(head).quality == Quality(Tally({UNMET_ROWS: 1}), unmet={"short": 1})
    [part] = decode_kafka(own, "orders-7")[0].parts
    assert pq.read_table(tmp_path / part.name).to_pylist() == [{"value": b"a"}, {"value": b"bb"}]


def test_a_writer_that_hides_why_its_rows_end_refuses_the_batch_all_the_same() -> None:
    class Hiding:
        def write(self, _: int, batches: Iterator[Any]) -> bytes:
            try:
                deque(batches, maxlen=0)
            except Exception as error:
                raise OSError("the rows end") from error
            return b"all"

    rule = Expected("short", OnUnmet.FAIL)
    rows = [pa.record_batch({"value": ["a", "bb"], rule.mark: [True, met]}) for met in (True, False, True)]
    writer = ParquetTaskWriter(PLAN, (rule,), behind=Hiding())
    head, own = apart(writer.write(0, iter(rows)), 2)
    assert (decode(head).refused, decode(head).rows, own) == (True, 6, b"")
    _, own = apart(writer.write(0, iter(rows[:1])), 2)
    assert own == b"all"
    with pytest.raises(OSError, match="the rows end"):
        writer.write(0, iter([pa.record_batch({"value": ["a"]})]))


class Leaving(FileSink):
    """A sink whose driver writes a row that tasks left; at first, it plans the batch anew."""

    is_new = True

    def write_rest(self, transaction: Any, receipts: Sequence[bytes]) -> bytes | WriteAgain:
        """See `TwoPhaseCommitSink`."""
        assert len(self.votes(transaction.batch, receipts)) == len(receipts)
        if self.is_new:
            self.is_new = False
            return WriteAgain()
        left = pa.record_batch({"id": [9], "amount": [90]}, COLUMNS)
        return self.writer(transaction.batch).write(len(receipts), iter([left]))


def test_rows_that_the_driver_of_a_sink_writes_come_with_those_that_passed(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "quarantine")
    sink = driver.sink()
    sink.behind = Leaving(driver.directory.directory, "clicks")
    run_batch(driver.directory.batch(0), [sink], one_task(driver.rows(BATCHES[0])))
    assert driver.read() == [{"id": 1, "amount": 10}, {"id": 9, "amount": 90}]
    assert driver.letters().total() == 2


FAULTS = {"dies before": dies_before, "dies after": dies_after, "answer lost": answer_is_lost}


@pytest.mark.parametrize("of_letters", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_driver_that_dies_between_two_commits_is_completed_by_the_next(
    tmp_path: Path, fault: str, *, of_letters: bool
) -> None:
    driver, world = Driver(tmp_path, "quarantine"), World("quarantine", "")
    for batch_id, rows in enumerate(batches("")):
        world.apply(batch_id, rows)
        if batch_id == 2:
            faults = driver.lake.catalog.faults if of_letters else driver.directory.storage.faults
            faults.append(FAULTS[fault])
        until_it_lives(partial(driver.take, batch_id, rows))
    assert driver.read() == world.rows
    assert driver.letters() == world.letters


def test_a_recovered_batch_still_tells_what_was_found_in_it(tmp_path: Path) -> None:
    driver, outcomes = Driver(tmp_path, "quarantine"), list[Outcome]()
    driver.directory.storage.faults.append(dies_before)
    until_it_lives(lambda: outcomes.append(driver.take(0, BATCHES[0])))
    [outcome] = outcomes
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert outcome.quality.counts[DEAD_LETTERS] == 2
    assert outcome.quality.letters_table == LETTERS


class StandsStill(FileSink):
    """A sink whose driver stands still after its first look; `meanwhile` happens then."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def begin(self, batch: Batch) -> Any:
        """See `TwoPhaseCommitSink`."""
        begun, meanwhile = super().begin(batch), self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        return begun


def test_a_driver_that_stood_still_finds_the_batch_that_a_rival_has_committed_and_gone_on(tmp_path: Path) -> None:
    driver, rows = Driver(tmp_path, "quarantine"), batches("")[:2]
    rows[1] = [{"id": 8, "amount": -80}]
    sink = driver.sink()
    sink.behind = behind = StandsStill(driver.directory.directory, "clicks")
    behind.meanwhile = lambda: [driver.take(batch_id, found) for batch_id, found in enumerate(rows)]
    outcomes = run_batch(driver.directory.batch(0), [sink], one_task(driver.rows(rows[0])))
    assert isinstance(outcomes[sink.name], AlreadyCommitted)
    assert (len(driver.read()), driver.letters().total()) == (1, 3)


def test_a_batch_that_comes_with_other_rows_than_its_dead_letters_is_refused(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "quarantine")
    driver.directory.storage.faults.append(dies_before)
    with pytest.raises(Killed):
        driver.take(0, BATCHES[0])
    for prepared in (tmp_path / "out").rglob("prepared/*.json"):
        prepared.unlink()
    with pytest.raises(WriteError, match="DEAD_LETTERS_DIFFER") as refused:
        driver.take(0, BATCHES[0][:2])
    assert "another dead_letter_table" in refused.value.action
    assert driver.read() == []


@pytest.mark.parametrize("now", ["warn", ""])
def test_a_batch_whose_dead_letters_may_have_landed_is_not_written_by_a_query_that_puts_no_row_aside(
    tmp_path: Path, now: str
) -> None:
    driver, world = Driver(tmp_path, "quarantine"), World("quarantine", "")
    world.apply(0, BATCHES[0])
    driver.directory.storage.faults.append(dies_before)
    with pytest.raises(Killed):
        driver.take(0, BATCHES[0])
    driver.rule = now
    sink = driver.sink() if now else driver.directory.sink()
    with pytest.raises(WriteError, match="DEAD_LETTERS_DIFFER") as refused:
        run_batch(driver.directory.batch(0), [sink], one_task(driver.rows(BATCHES[0])))
    assert f"dead_letter_table='{LETTERS}'" in refused.value.action
    assert driver.read() == []
    driver.rule = "quarantine"
    driver.take(0, BATCHES[0])
    assert (driver.read(), driver.letters()) == (world.rows, world.letters)


def test_an_accept_that_the_table_of_dead_letters_needs_is_not_called_unused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(tmp_path, "quarantine")
    for batch_id in range(2):
        driver.take(batch_id, BATCHES[0])
    letters = driver.lake.catalog.load_table(LETTERS)
    letters.manage_snapshots().rollback_to_snapshot(letters.snapshots()[0].snapshot_id).commit()
    with pytest.raises(BatchRefused) as refused:
        driver.take(2, BATCHES[0])
    driver.accept = offered(refused.value)["commit"]
    assert isinstance(driver.take(2, BATCHES[0]), Committed)
    assert "lakesink.accept.unused" not in caplog.text


def test_an_accept_that_the_directory_needs_is_not_called_unused_by_the_table_of_dead_letters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(tmp_path, "quarantine")
    driver.take(0, BATCHES[0])
    driver.directory.query = "query-2"
    with pytest.raises(BatchRefused) as refused:
        driver.take(0, BATCHES[0])
    driver.accept = offered(refused.value)["commit"]
    assert isinstance(driver.take(0, BATCHES[0]), Committed)
    assert "lakesink.accept.unused" not in caplog.text
    assert isinstance(driver.take(1, BATCHES[0]), Committed)
    assert caplog.text.count("lakesink.accept.unused") == 1


def test_an_option_of_a_sink_is_told_whose_it_is(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "clicks")
    told = {"sink_id": "It is one of the sink: give it to FileSink.", "branch": "Only a table can have it."}
    for name, said in told.items():
        with pytest.raises(SettingsError, match=f"lakesink.stream_to has no option '{name}'. {said}"):
            row_settings(stream_to, SinkKey("clicks"), {name: "x"}, sink)


def test_too_many_dead_letters_fail_the_batch(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "quarantine", options={"max_dead_letter_ratio": 0.5})
    with pytest.raises(WriteError, match=r"DEAD_LETTERS_TOO_MANY.*2 of 3 rows"):
        driver.take(0, BATCHES[0])
    assert driver.read() == []
    assert not driver.letters()


def test_what_a_query_prepared_without_checks_is_written_again(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "warn")
    driver.directory.storage.faults.append(dies_before)
    unmarked = one_task(pa.Table.from_pylist(list(BATCHES[0]), COLUMNS))
    with pytest.raises(Killed):
        run_batch(driver.directory.batch(0), [driver.directory.sink()], unmarked)
    outcome = driver.take(0, BATCHES[0])
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert outcome.quality.counts[UNMET_ROWS] == 2
    assert len(driver.read()) == 3
