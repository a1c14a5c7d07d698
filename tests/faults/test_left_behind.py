"""A driver dies when a side table has its batch and the table does not, and its checkpoint is lost with it.

No run can complete that batch. Its dead letters and its changes must not be taken for those of another query's batch.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from lakesink.sinks.iceberg.side.pending import OfTable, first_letters
from lakesink_catalog.tables import tables
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import BatchRefused, WriteError
from lakesink_protocol.identity import MAIN_BRANCH, SinkKind
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from lakesink_tools.audit.audit import audit
from lakesink_tools.audit.finding import Finding, broken
from lakesink_tools.checks.doctor.checkpoint import NextBatch, next_verdict
from lakesink_tools.checks.doctor.finding import Standing
from lakesink_tools.checks.doctor.table import check_table
from lakesink_tools.cli.main import main
from lakesink_tools.operate import rewind_side_tables
from lakesink_tools.operate.forget import Forgetting
from testkit.answers import first
from testkit.builders import TABLE, Lake, Stream, is_prepared_record, offered
from testkit.change_table import CHANGES, OPTIONS, ROWS, Change, upsert_lake
from testkit.deaths import Killed, dies_before
from testkit.letters import one_task
from testkit.maintenance import edit_metadata, expire, rewrite, roll_back

LETTERS, LOG = f"{TABLE}__dead_letters", "demo.changelog"


@dataclass(frozen=True)
class Pair:
    """A table and its side table. Each batch has a row for the side table, and one for the table."""

    lake: Lake
    name: str
    option: str
    code: str
    options: Mapping[str, Any]
    arriving: pa.Schema
    columns: pa.Schema
    rows: Callable[[int], list[dict[str, Any]]]
    kind: SinkKind = SinkKind.STREAM

    @property
    def side(self) -> Table:
        return self.lake.catalog.load_table(self.name)

    def run(
        self,
        query: str,
        number: int,
        meanwhile: Callable[[], object] = lambda: None,
        *,
        to: int | None = None,
        sink_id: str = "events",
        **options: Any,
    ) -> Outcome:
        """Run one batch, which may read `to` a later offset than usual, with a driver that has just started.

        Something happens before its votes are counted.
        """
        stream = Stream(self.lake, sink_id=sink_id, query=query, kind=self.kind, options={**self.options, **options})
        sink, batch = stream.sink(), stream.batch(number, end=to)
        sink.schema = self.columns

        def job(writers: Mapping[str, TaskWriter]) -> Votes:
            votes = one_task(pa.Table.from_pylist(self.rows(to or number), schema=self.arriving))(writers)
            meanwhile()
            return votes

        return run_batch(batch, [sink], job)[sink.name]

    def dies(self, query: str, number: int, **options: Any) -> None:
        """The driver dies between the two commits."""

        self.lake.catalog.faults = [first(lambda: None), dies_before]
        with pytest.raises(Killed):
            self.run(query, number, **options)

    def accept(self, query: str) -> str:
        """The word that lets a new query in."""
        with pytest.raises(BatchRefused) as refused:
            self.run(query, 0)
        return offered(refused.value)["commit"]

    def refused(self, query: str, number: int, **options: Any) -> WriteError:
        """The error for a side table that has more than the table; nothing was written."""
        before = self.lake.table().metadata_location, self.side.metadata_location
        with pytest.raises(WriteError, match=f"{self.name} has .* that {TABLE} never got") as refused:
            self.run(query, number, **options)
        assert refused.value.code == f"LAKESINK_{self.code}"
        assert (self.lake.table().metadata_location, self.side.metadata_location) == before
        return refused.value

    def roll_back(self, error: WriteError) -> None:
        """As the error says."""
        [to] = re.findall(rf"Roll {self.name} back to snapshot (\d+)\.", error.action)
        self.side.manage_snapshots().rollback_to_snapshot(int(to)).commit()

    def batches(self) -> list[int]:
        """Those of the rows in the side table."""
        column = "batch_id" if self.option == "dead_letter_table" else "_batch_id"
        return sorted(self.side.scan().to_arrow()[column].to_pylist())

    def findings(self) -> list[Finding]:
        """Those of an audit that are about the side table."""
        return [one for one in audit(self.lake.table()).findings if one.code.name == self.code]


def _letters(folder: Path, kind: SinkKind = SinkKind.STREAM) -> Pair:
    lake = Lake.make(folder, schema=Schema(NestedField(1, "id", LongType(), required=True)))
    options, ids = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0}, pa.schema([("id", pa.int64())])
    named = "dead_letter_table", "DEAD_LETTERS_DIFFER"
    return Pair(lake, LETTERS, *named, options, ids, ids, lambda number: [{"id": number}, {"id": None}], kind)


def _changes(folder: Path, mode: str, kind: SinkKind = SinkKind.STREAM) -> Pair:
    options = {**OPTIONS, "mode": mode, "changelog_table": LOG}
    if mode == "upsert":
        del options["apply_as_deletes"]

    def rows(number: int) -> list[dict[str, Any]]:
        change = Change(number, number, "a", "x", Decimal(1))
        return [change.arriving if mode == "changes" else change.row]

    arriving = CHANGES if mode == "changes" else ROWS
    return Pair(upsert_lake(folder), LOG, "changelog_table", "CHANGELOG_DIFFERS", options, arriving, ROWS, rows, kind)


@pytest.fixture(params=["letters", "upsert", "changes"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """Of a stream."""
    return _letters(tmp_path) if request.param == "letters" else _changes(tmp_path, request.param)


@pytest.fixture(params=["append", "upsert", "changes"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """Of a batch job, whose versions may have gaps."""
    kind = SinkKind.TXN
    return _letters(tmp_path, kind) if request.param == "append" else _changes(tmp_path, request.param, kind)


def replayable(pair: Pair) -> list[int]:
    """The batches of the letters that a replay would take."""
    of = OfTable(pair.lake.table(), pair.side, MAIN_BRANCH)
    found = first_letters(of, of.is_complete)
    return [] if found is None else sorted(found["batch_id"].to_pylist())


def test_a_first_query_that_lost_its_checkpoint_leaves_a_side_table_that_the_next_one_refuses(pair: Pair) -> None:
    pair.dies("lost", 0)
    error = pair.refused("new", 0)
    head = pair.side.current_snapshot()
    assert head is not None
    assert f"batch 0 in snapshot {head.snapshot_id}" in str(error)
    assert f"Drop {pair.name}: it has nothing else." in error.action
    pair.lake.catalog.drop_table(pair.name)
    assert isinstance(pair.run("new", 0), Committed)
    assert pair.batches() == [0]
    assert pair.findings() == []


@pytest.mark.parametrize("looks", [1, 2])
def test_an_older_state_of_the_table_shows_nothing_that_was_left_behind(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """A catalog may answer a load with the state before the last batch, or with the table that was dropped."""
    pair.run("old", 0)
    older = [pair.lake.table()] * looks
    pair.run("old", 1)
    word = pair.accept("new")

    def load_table(catalog: Catalog, name: str) -> Table:
        return older.pop() if name == TABLE and older else tables.load_table(catalog, name)

    monkeypatch.setattr("lakesink.sinks.iceberg.side.side_sink.load_table", load_table)
    assert isinstance(pair.run("new", 0, accept=word), Committed)
    assert pair.batches() == [0, 0, 1]


def test_an_accepted_query_that_lost_its_checkpoint_is_taken_out_by_a_rollback(pair: Pair) -> None:
    for number in range(2):
        pair.run("old", number)
    word = pair.accept("lost")
    pair.dies("lost", 0, accept=word)
    error = pair.refused("new", 0, accept=word)
    pair.roll_back(error)
    assert isinstance(pair.run("new", 0, accept=word), Committed)
    assert pair.batches() == [0, 0, 1]
    assert isinstance(pair.run("new", 1), Committed)
    assert pair.findings() == []


def test_no_advice_takes_rows_out_of_the_side_table_that_belong_to_batches_of_the_table(pair: Pair) -> None:
    """An older checkpoint is accepted, and its batch has other rows: those that both tables have must stay."""
    for number in range(3):
        pair.run("old", number)
    with pytest.raises(BatchRefused) as refused:
        pair.run("old", 0, to=7)
    word = offered(refused.value)["commit"]
    with pytest.raises(WriteError) as differs:
        pair.run("old", 0, to=7, accept=word)
    assert differs.value.code == f"LAKESINK_{pair.code}"
    assert not re.search("Roll |Drop ", differs.value.action)
    assert f"another {pair.option}" in differs.value.action
    another = replace(pair, options={**pair.options, pair.option: "demo.another"})
    assert isinstance(another.run("old", 0, to=7, accept=word), Committed)
    assert pair.batches() == [0, 1, 2]


def test_a_first_batch_that_was_rolled_back_comes_again_after_its_side_table_was_dropped_as_told(pair: Pair) -> None:
    pair.run("old", 0)
    head, word = pair.lake.head().snapshot_id, pair.accept("new")
    another = replace(pair, name="demo.another", options={**pair.options, pair.option: "demo.another"})
    another.run("new", 0, accept=word)
    roll_back(pair.lake, head)
    with pytest.raises(BatchRefused) as refused:
        another.run("new", 0)
    by = f"(`lakesink rewind` does this with `--table {TABLE}`.)"
    assert refused.value.choices[0].startswith(f"Drop demo.another: it has nothing else. {by} If this checkpoint")
    pair.lake.catalog.drop_table("demo.another")
    assert isinstance(another.run("new", 0, accept=offered(refused.value)["commit"]), Committed)
    assert another.batches() == [0]
    assert another.findings() == []


@pytest.mark.parametrize("way", ["rolled back", "another side table"])
@pytest.mark.parametrize("name", ["events", "a" * 64])
def test_a_new_sink_does_not_add_to_what_a_removed_one_left_behind(pair: Pair, way: str, name: str) -> None:
    pair.run("old", 0, sink_id=name)
    pair.dies("old", 1, sink_id=name)
    stream = Stream(pair.lake, sink_id=name, query="old", kind=pair.kind)
    Forgetting(pair.lake.table, stream.key, effects=stream.chance.effects()).run()
    error = pair.refused("new", 0, sink_id="next")
    assert f"by sink {name!r}, which has no ledger entry any more" in str(error)
    if way == "rolled back":
        pair.roll_back(error)
        assert isinstance(pair.run("new", 0, sink_id="next"), Committed)
        assert pair.batches() == [0, 0]
    else:
        assert f"Start the query with another {pair.option}" in error.action
        named: dict[str, Any] = {pair.option: "demo.another"}
        assert isinstance(pair.run("new", 0, sink_id="next", **named), Committed)
        assert replace(pair, name="demo.another").batches() == [0]


def test_a_new_sink_does_not_add_to_what_a_removed_one_left_behind_when_it_was_rolled_back(pair: Pair) -> None:
    pair.run("zero", 0, sink_id="zero")
    head = pair.lake.head().snapshot_id
    pair.run("old", 0)
    pair.dies("old", 1)
    roll_back(pair.lake, head)
    stream = Stream(pair.lake, query="old", kind=pair.kind)
    Forgetting(pair.lake.table, stream.key, effects=stream.chance.effects()).run()
    error = pair.refused("new", 0, sink_id="next")
    pair.roll_back(error)
    assert isinstance(pair.run("new", 0, sink_id="next"), Committed)
    assert pair.batches() == [0, 0]


def test_a_sink_that_lost_its_entry_in_a_rollback_writes_its_first_batch_again(pair: Pair) -> None:
    pair.run("zero", 0, sink_id="zero")
    head = pair.lake.head().snapshot_id
    pair.run("same", 0)
    roll_back(pair.lake, head)
    stream = Stream(pair.lake, query="same", kind=pair.kind)
    Forgetting(pair.lake.table, stream.key, effects=stream.chance.effects()).run()
    assert isinstance(pair.run("same", 0), Committed)
    assert pair.batches() == [0, 0]


def test_a_new_sink_may_begin_while_another_one_has_a_batch_in_the_side_table_alone(pair: Pair) -> None:
    pair.run("old", 0)
    pair.dies("old", 1)
    assert isinstance(pair.run("new", 0, sink_id="next"), Committed)
    assert isinstance(pair.run("old", 1), Committed)
    assert pair.findings() == []


def test_a_new_sink_in_a_copy_of_the_table_is_told_to_name_another_side_table(pair: Pair) -> None:
    pair.run("old", 0)
    edit_metadata(pair.lake, lambda metadata: metadata.update({"table-uuid": str(uuid4())}))
    with pytest.raises(BatchRefused) as refused:
        pair.run("old", 1)
    keeps = {"dead_letter_table": "dead letters", "changelog_table": "changes"}[pair.option]
    named = f"Name another {pair.option} then: {pair.name} has {keeps} of the old table."
    first, second = refused.value.choices
    assert "new sink id" in second
    assert second.endswith(named)
    assert named not in first


def test_another_side_table_is_a_way_out(pair: Pair) -> None:
    pair.dies("lost", 0)
    error = pair.refused("new", 0)
    assert f"another {pair.option}" in error.action
    another = replace(pair, options={**pair.options, pair.option: "demo.another"})
    assert isinstance(another.run("new", 0), Committed)


def test_a_query_that_finds_its_own_batch_completes_it(pair: Pair) -> None:
    pair.dies("same", 0)
    assert isinstance(pair.run("same", 0), Committed)
    assert pair.batches() == [0]


def test_a_new_query_is_not_refused_for_batches_that_the_table_has(pair: Pair) -> None:
    for number in range(3):
        pair.run("old", number)
    word = pair.accept("new")
    assert isinstance(pair.run("new", 0, accept=word), Committed)
    assert pair.findings() == []


def test_the_first_batch_alone_looks_for_what_was_left_behind(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers at a time: one dies between its commits, after the other one has looked."""
    pair.run("wins", 0, lambda: pair.dies("loses", 0))
    assert pair.batches() == [0, 0]
    monkeypatch.setattr("lakesink.sinks.iceberg.side.side_table.left_behind", None)
    assert isinstance(pair.run("wins", 1), Committed)


def test_a_batch_that_an_operator_skips_does_not_hide_what_was_left_behind(pair: Pair) -> None:
    pair.run("old", 0)
    word = pair.accept("lost")
    pair.dies("lost", 0, accept=word)
    pair.run("new", 0, accept=word.replace(":commit", ":skip"))
    pair.roll_back(pair.refused("new", 1))
    assert isinstance(pair.run("new", 1), Committed)


def test_batches_of_two_drivers_at_a_time_are_found_and_no_rollback_is_advised(pair: Pair) -> None:
    pair.run("wins", 0, lambda: pair.dies("loses", 0))
    [finding] = pair.findings()
    assert finding.items == ("0",)
    assert "no rollback" in finding.found
    error = pair.refused("third", 0, accept=pair.accept("third"))
    assert "Roll" not in error.action


def test_the_audit_names_what_was_left_behind_and_how_it_goes_away(pair: Pair) -> None:
    pair.run("old", 0)
    word = pair.accept("lost")
    pair.dies("lost", 0, accept=word)
    snapshots = [one.snapshot_id for one in pair.side.snapshots()]
    [finding] = pair.findings()
    assert finding.items == ("0",)
    assert f"batch 0 in snapshot {snapshots[1]}" in finding.found
    assert f"Roll {pair.name} back to snapshot {snapshots[0]}." in finding.found


def test_a_batch_that_its_query_can_complete_is_no_finding(pair: Pair) -> None:
    pair.run("same", 0)
    pair.dies("same", 1)
    proof = audit(pair.lake.table())
    assert not proof.findings
    assert any(f"{pair.name} is ahead of the table" in one.found for one in proof.notes)


def test_after_a_rollback_audit_and_doctor_name_the_side_table_and_its_snapshot(pair: Pair) -> None:
    for number in range(3):
        pair.run("same", number)
    roll_back(pair.lake, pair.lake.table().snapshots()[0].snapshot_id)
    to = pair.side.snapshots()[0].snapshot_id
    told, coming = f"Roll {pair.name} back to snapshot {to}.", Stream(pair.lake, query="same").batch(1)
    [finding] = pair.findings()
    assert finding.items == ("1", "2")
    assert finding.found.endswith(told)
    assert not any("ahead of the table" in one.found for one in audit(pair.lake.table()).notes)
    [side] = [one for one in check_table(TABLE, pair.lake.table()) if one.check in ("side table", "changelog")]
    assert (side.standing, side.fix) == (Standing.FAILED, told)
    rewound = NextBatch(coming, planned=True, done=0)
    before = next_verdict(rewound, pair.lake.table())
    by = f"(`lakesink rewind` does this with `--table {TABLE}`.)"
    assert (before.standing, before.fix) == (Standing.FAILED, f"{told} {by}")
    pair.side.manage_snapshots().rollback_to_snapshot(to).commit()
    assert pair.findings() == []
    assert next_verdict(rewound, pair.lake.table()).standing is Standing.OK


def checkpoint_of(folder: Path, query: str, done: int) -> Path:
    root = folder / "ck"
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True)
        for number in range(done + 1):
            (root / log / str(number)).write_text("v1")
    (root / "metadata").write_text(json.dumps({"id": query}))
    return root


def rewind(pair: Pair, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, *options: str, to_batch: int = 0) -> Result:
    monkeypatch.setattr(rewind_side_tables, "connect", lambda *_, **__: pair.lake.catalog)
    told = ["rewind", str(checkpoint), "--to-batch", str(to_batch), "--table", TABLE, *options, "--output", "json"]
    return CliRunner().invoke(main, told)


def test_after_a_rollback_rewind_takes_the_side_table_along(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        pair.run("same", number)
    roll_back(pair.lake, pair.lake.table().snapshots()[0].snapshot_id)
    first, checkpoint = pair.side.snapshots()[0].snapshot_id, checkpoint_of(tmp_path, "same", 2)
    declined = rewind(pair, checkpoint, monkeypatch)
    assert declined.exit_code == 2
    assert len(set(pair.batches())) == 3
    done = rewind(pair, checkpoint, monkeypatch, "--yes")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["side_tables"] == [{"table": pair.name, "snapshot_id": first, "dropped": False}]
    assert set(pair.batches()) == {0}
    assert pair.side.metadata.refs[MAIN_BRANCH].snapshot_id == first
    again = rewind(pair, checkpoint, monkeypatch, "--yes")
    assert json.loads(again.stdout)["side_tables"] == []
    assert isinstance(pair.run("same", 1, to=7), Committed)
    assert not pair.findings()


def test_rewind_drops_a_side_table_that_has_nothing_else_and_no_file_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = _letters(tmp_path)
    _others_append(pair)
    pair.run("same", 0)
    roll_back(pair.lake, pair.lake.table().snapshots()[0].snapshot_id)
    before = pair.lake.files()
    done = rewind(pair, checkpoint_of(tmp_path, "same", 0), monkeypatch, "--yes", to_batch=-1)
    assert json.loads(done.stdout)["side_tables"] == [{"table": pair.name, "snapshot_id": None, "dropped": True}]
    assert not pair.lake.catalog.table_exists(pair.name)
    assert pair.lake.files() == before
    assert isinstance(pair.run("same", 0, to=5), Committed)
    assert not pair.findings()


def test_rewind_sets_back_no_side_table_that_a_later_batch_of_another_sink_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = _letters(tmp_path)
    for number in range(2):
        pair.run("same", number)
    roll_back(pair.lake, pair.lake.table().snapshots()[0].snapshot_id)
    pair.side.append(pair.side.scan().to_arrow())  # of somebody else
    head, checkpoint = pair.side.metadata_location, checkpoint_of(tmp_path, "same", 1)
    refused = rewind(pair, checkpoint, monkeypatch, "--yes")
    assert refused.exit_code == 2
    assert "LAKESINK_REWIND_REFUSED" in refused.output
    assert "no rollback takes these dead letters out" in refused.output
    assert pair.side.metadata_location == head
    assert (checkpoint / "commits" / "1").exists()


def test_rewind_of_a_query_that_does_not_write_the_table_is_refused(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.run("same", 0)
    checkpoint = checkpoint_of(tmp_path, "stranger", 1)
    refused = rewind(pair, checkpoint, monkeypatch, "--yes")
    assert refused.exit_code == 2
    assert f"No sink of {TABLE} has batches of the query of this checkpoint." in refused.output
    assert (checkpoint / "commits" / "1").exists()


def test_a_batch_that_was_rolled_back_and_comes_otherwise_is_told_why_and_what_goes_back(pair: Pair) -> None:
    for number in range(2):
        pair.run("same", number)
    roll_back(pair.lake, pair.lake.table().snapshots()[0].snapshot_id)
    with pytest.raises(WriteError) as differs:
        replace(pair, rows=lambda number: [*pair.rows(number), *pair.rows(8)]).run("same", 1)
    back = f"Roll {pair.name} back to snapshot {pair.side.snapshots()[0].snapshot_id}."
    first, *_ = differs.value.choices or (differs.value.action,)
    assert first == f"{TABLE} was rolled back, and {pair.name} was not. {back} Then start the query again."
    assert differs.value.what.count(pair.name) == 1


def test_audit_and_status_tell_of_a_first_batch_that_only_its_dead_letters_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = _letters(tmp_path)
    monkeypatch.setattr("lakesink_tools.cli.run.audit.connect", lambda *_, **__: pair.lake.catalog)
    monkeypatch.setattr("lakesink_tools.cli.run.status.connect", lambda *_, **__: pair.lake.catalog)
    waits = f"{LETTERS} has dead letters of batch 0, which the table does not have yet: start its query again."
    for command in ("audit", "status"):
        assert "check the name" in CliRunner().invoke(main, [command, TABLE]).output
    pair.dies("same", 0)
    for path in pair.lake.files():
        if is_prepared_record(path):  # a batch job has none
            path.unlink()
    for command in ("audit", "status"):
        told = CliRunner().invoke(main, [command, TABLE])
        assert told.exit_code == 1
        assert waits in told.output
        assert "Next: start its query again" in told.output
    pair.run("same", 0)
    assert waits not in CliRunner().invoke(main, ["audit", TABLE]).output


def test_a_version_that_was_given_up_after_its_side_table_had_it_is_run_again_before_the_next_one(job: Pair) -> None:
    job.run("", 3)
    job.dies("", 5)
    error = job.refused("", 7)
    assert "batch 5 in snapshot" in str(error)
    assert "Run batch 5 again as it was." in error.action
    for number in (5, 7):
        assert isinstance(job.run("", number), Committed)
    assert job.batches() == [3, 5, 7]
    assert job.findings() == []


@pytest.mark.parametrize("history", ["whole", "expired"])
def test_letters_of_a_batch_that_the_table_never_got_are_never_replayed(tmp_path: Path, history: str) -> None:
    pair = _letters(tmp_path)
    for number in range(3):
        pair.run("old", number)
    word = pair.accept("wins")
    if history == "expired":
        pair.lake.table().maintenance.expire_snapshots().by_ids(_but_the_last(pair.lake.table())).commit()
    assert replayable(pair) == [0, 1, 2]
    pair.run("wins", 0, lambda: pair.dies("loses", 0, accept=word), accept=word)
    assert pair.batches() == [0, 0, 0, 1, 2]
    assert replayable(pair) == [0, 0, 1, 2]
    pair.run("wins", 1)
    assert replayable(pair) == [0, 0, 1, 1, 2]


def test_letters_wait_for_the_batch_of_their_own_query(tmp_path: Path) -> None:
    pair = _letters(tmp_path)
    for number in range(3):
        pair.run("old", number)
    word = pair.accept("new")
    pair.dies("new", 0, accept=word)
    assert replayable(pair) == [0, 1, 2]
    pair.run("new", 0, accept=word)
    assert replayable(pair) == [0, 0, 1, 2]


def test_letters_of_a_version_that_was_given_up_are_never_replayed(tmp_path: Path) -> None:
    job = _letters(tmp_path, SinkKind.TXN)
    job.dies("", 5)
    assert replayable(job) == []
    job.run("", 7, dead_letter_table="demo.another")
    assert replayable(job) == []
    assert [one.items for one in job.findings()] == [("5",)]


def test_a_query_that_an_operator_let_go_on_behind_a_rollback_is_recovered_after_a_crash(pair: Pair) -> None:
    """Its side table still has a batch that the table has no more."""
    for number in range(4):
        pair.run("same", number)
    roll_back(pair.lake, pair.lake.table().snapshots()[2].snapshot_id)
    with pytest.raises(BatchRefused) as refused:
        pair.run("same", 4)
    pair.run("same", 4, accept=offered(refused.value)["commit"])
    [stay] = pair.findings()
    assert (stay.items, stay.accepted) == (("3",), True)
    assert not broken(audit(pair.lake.table()).findings)
    pair.dies("same", 5)
    assert isinstance(pair.run("same", 5), Committed)
    assert isinstance(pair.run("same", 6), Committed)


def test_a_batch_that_an_operator_skips_behind_a_rollback_does_not_stop_its_query(pair: Pair) -> None:
    for number in range(4):
        pair.run("same", number)
    roll_back(pair.lake, pair.lake.table().snapshots()[2].snapshot_id)
    with pytest.raises(BatchRefused) as refused:
        pair.run("same", 4)
    pair.run("same", 4, accept=offered(refused.value)["skip"])
    assert isinstance(pair.run("same", 5), Committed)


def test_a_side_table_whose_first_snapshots_expired_is_not_called_empty(pair: Pair) -> None:
    """PyIceberg's expiry leaves the oldest snapshot without a parent, though it has rows of earlier ones."""
    for number in range(4):
        pair.run("same", number)
    pair.side.maintenance.expire_snapshots().by_ids(_but_the_last(pair.side)).commit()
    roll_back(pair.lake, pair.lake.table().snapshots()[2].snapshot_id)
    with pytest.raises(BatchRefused) as refused:
        pair.run("same", 4)
    assert "Drop" not in str(refused.value)
    assert refused.value.choices[0].startswith(f"Name another {pair.option}: no rollback takes these ")


def test_letters_of_an_earlier_query_stay_replayable_when_the_table_expires(tmp_path: Path) -> None:
    pair = _letters(tmp_path)
    pair.run("old", 0)
    word = pair.accept("new")
    pair.run("new", 0, accept=word)
    pair.run("new", 1)
    pair.lake.table().maintenance.expire_snapshots().by_ids(_but_the_last(pair.lake.table())).commit()
    assert replayable(pair) == [0, 0, 1]


def test_letters_wait_while_nothing_shows_whether_their_batch_was_rolled_back(tmp_path: Path) -> None:
    """Else a replay lands rows of a batch that comes again, perhaps after its letters were rolled back as well."""
    pair = _letters(tmp_path)
    for number in range(2):
        pair.run("same", number)
    first = pair.lake.table().snapshots()[0].snapshot_id
    roll_back(pair.lake, first)
    _others_append(pair)
    expire(pair.lake, [first])
    assert replayable(pair) == []
    with pytest.raises(BatchRefused) as refused:
        pair.run("same", 1)
    pair.run("same", 1, accept=offered(refused.value)["commit"])
    assert replayable(pair) == [0, 1]


@pytest.mark.parametrize("undone", [False, True])
def test_a_batch_of_side_rows_alone_is_in_the_table_only_if_its_snapshot_is(pair: Pair, *, undone: bool) -> None:
    """It added no file that could be missed, and its side rows can be rolled back with the table."""
    if pair.options.get("mode") == "upsert":
        pytest.skip("an upsert always adds a file")
    pair.run("same", 0)
    absent = Change(9, 9, "a", "x", Decimal(1), deletes=True).arriving
    aside = replace(pair, rows=lambda _: [absent if pair.name == LOG else {"id": None}])
    aside.run("same", 1)
    first, second = (one.snapshot_id for one in pair.lake.table().snapshots())
    if undone:
        roll_back(pair.lake, first)
        pair.side.manage_snapshots().rollback_to_snapshot(pair.side.snapshots()[0].snapshot_id).commit()
    _others_append(pair)
    _others_append(pair)
    third = pair.lake.table().snapshots()[2].snapshot_id
    expire(pair.lake, [first, third])
    if undone:
        with pytest.raises(BatchRefused) as refused:
            aside.run("same", 1)
        assert isinstance(aside.run("same", 1, accept=offered(refused.value)["commit"]), Committed)
    else:
        assert aside.run("same", 1) == AlreadyCommitted(second)
    assert pair.batches() == [0, 1]


def test_batches_of_a_sink_that_was_removed_and_has_expired_are_not_called_lost(tmp_path: Path) -> None:
    pair = _letters(tmp_path)
    for number in range(3):
        pair.run("old", number)
    stream = Stream(pair.lake, query="old")
    Forgetting(pair.lake.table, stream.key, effects=stream.chance.effects()).run()
    rewrite(pair.lake)
    pair.lake.table().maintenance.expire_snapshots().by_ids(_but_the_last(pair.lake.table())).commit()
    assert isinstance(pair.run("new", 0), Committed)


def _others_append(pair: Pair) -> None:
    columns = pair.lake.table().schema().as_arrow()
    pair.lake.table().append(pa.Table.from_pylist([{"id": 99, "version": 0}], columns))


def _lose_records(lake: Lake) -> None:
    for path in filter(is_prepared_record, lake.files()):
        path.unlink()


def _but_the_last(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.snapshots()][:-1]


@pytest.mark.parametrize("history", ["whole", "expired"])
@pytest.mark.parametrize("kind", SinkKind)
def test_letters_of_a_batch_that_came_again_with_others_are_never_replayed(
    tmp_path: Path, kind: SinkKind, history: str
) -> None:
    """Its rows came another time, as rows of the table or as letters in another table."""
    query = "same" if kind is SinkKind.STREAM else ""
    old = _letters(tmp_path, kind)
    new = replace(old, name="demo.another", options={**old.options, "dead_letter_table": "demo.another"})
    old.run(query, 0)
    old.dies(query, 1)
    _lose_records(old.lake)
    for number in (1, 2):
        new.run(query, number)
    if history == "expired":
        old.lake.table().maintenance.expire_snapshots().by_ids(_but_the_last(old.lake.table())).commit()
    assert (old.batches(), replayable(old)) == ([0, 1], [0])
    assert (new.batches(), replayable(new)) == ([1, 2], [1, 2])
    proof = audit(old.lake.table())
    assert proof.findings == ()
    assert any("which state others or none: no replay takes them" in one.found for one in proof.notes) is (
        history == "whole"
    )


@pytest.mark.parametrize("other", [None, "demo.another"])
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("kind", SinkKind)
def test_a_batch_of_which_a_changelog_has_changes_is_not_written_without_it(
    tmp_path: Path, kind: SinkKind, at: int, other: str | None
) -> None:
    """No batch that landed may name this changelog, and there may be no prepared record."""
    logged = _changes(tmp_path, "upsert", kind)
    query = "same" if kind is SinkKind.STREAM else ""
    for number in range(at):
        logged.run(query, number)
    logged.dies(query, at)
    _lose_records(logged.lake)
    without = replace(logged, options={**logged.options, "changelog_table": other})
    with pytest.raises(WriteError, match=f"{LOG} has changes of batch {at}") as refused:
        without.run(query, at)
    assert f"changelog_table='{LOG}' until this batch is committed" in refused.value.action
    if at == 0:
        assert f"Drop {LOG}: it has nothing else." in refused.value.action
        logged.lake.catalog.drop_table(LOG)
    else:
        logged.roll_back(refused.value)
    assert isinstance(without.run(query, at), Committed)
    assert isinstance(without.run(query, at + 1), Committed)
    assert logged.findings() == []
    assert at == 0 or logged.batches() == [0, 1]


def test_a_table_keeps_the_changelog_of_its_sink_before_any_change_is_there(tmp_path: Path) -> None:
    logged = _changes(tmp_path, "upsert")
    without = replace(logged, options={**logged.options, "changelog_table": None})
    kept = "lakesink.changelog.stream.events"
    without.run("same", 0)
    assert kept not in logged.lake.table().properties
    logged.run("same", 1)
    assert logged.lake.table().properties[kept] == LOG
    without.run("same", 2)
    assert kept not in logged.lake.table().properties
    assert logged.batches() == [1]


def test_letters_of_a_version_that_came_again_with_none_are_never_replayed(tmp_path: Path) -> None:
    """Its input was corrected, and the job has no dead letters any more."""
    job = _letters(tmp_path, SinkKind.TXN)
    job.dies("", 1)
    corrected = replace(job, options={}, rows=lambda _: [{"id": 1}, {"id": 9}])
    corrected.run("", 1)
    assert (job.batches(), replayable(job)) == ([1], [])
    assert job.findings() == []
    corrected.run("", 2)
    job.run("", 3)
    assert replayable(job) == [3]


def test_an_old_batch_that_was_accepted_again_has_the_letters_of_both_times(tmp_path: Path) -> None:
    old = _letters(tmp_path)
    for number in range(3):
        old.run("old", number)
    with pytest.raises(BatchRefused) as refused:
        old.run("old", 1, to=7)
    new = replace(old, name="demo.another", options={**old.options, "dead_letter_table": "demo.another"})
    new.run("old", 1, to=7, accept=offered(refused.value)["commit"])
    old.run("old", 3)
    assert (replayable(old), replayable(new)) == ([0, 1, 2, 3], [1])
    assert old.findings() == []
