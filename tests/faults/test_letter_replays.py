"""Replays of dead letters: each lands once, whatever fails on the way and whatever becomes of the tables."""

from pathlib import Path
from threading import Barrier, Thread, get_ident
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.table import Table

import lakesink
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.side.pending import first_letters
from lakesink.sinks.iceberg.side.replay_loop import Repaired, check_no_documents
from lakesink.sinks.iceberg.side.replays import Replayed, assign
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import BatchRefused, CatalogError, LakesinkError
from lakesink_protocol.identity import SinkKey, SinkKind, transaction_batch
from lakesink_tools.cli.main import main
from testkit import maintenance
from testkit.bronze import Bronze
from testkit.builders import counted, expected, offered
from testkit.letters import AGES, LETTERS, REPLAYS, TABLE, Died, aged_120, append, assigned, dies, fix, ids, load, rows

pytestmark = pytest.mark.usefixtures("home")
ONLY_2 = aged_120(lambda id_: id_ == 2)


def roll_back(name: str, snapshots: int = 1) -> None:
    table = load_table(connect(create=False), name)
    kept = table.history()[-1 - snapshots].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(kept).commit()


def test_a_letter_that_the_repair_leaves_out_stays_pending() -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    assert fix(aged_120(lambda id_: id_ == 2)) == (1, 1, 1)
    assert fix(aged_120(lambda _: False)) == (0, 0, 1)
    assert ids() == [1, 2]
    assert fix() == (1, 1, 0)
    assert ids() == [1, 2, 3]


def test_a_table_without_dead_letters_is_named() -> None:
    load(1, (1, 30))
    connect(create=False).drop_table(LETTERS)
    with pytest.raises(CatalogError, match=f"There is no table {LETTERS}: no query has put rows of {TABLE} aside"):
        fix()
    with pytest.raises(CatalogError, match=r"There is no table demo\.nope in"):
        fix(table="demo.nope")


def test_many_letters_are_replayed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lakesink.sinks.iceberg.side.replay_loop.first_letters", lambda of, wanted: first_letters(of, wanted, 2)
    )
    load(1, *((at, 150) for at in range(5)))
    assert fix(aged_120(lambda id_: id_ != 1)) == (3, 4, 1)
    assert ids() == [0, 2, 3, 4]
    assert sum(assigned().values()) == 4


def test_a_part_has_a_limit_of_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lakesink.sinks.iceberg.side.replay_loop.first_letters", lambda of, wanted: first_letters(of, wanted, 100, 1)
    )
    for version in range(3):
        load(version, (version, 150))
    assert fix() == (3, 3, 0)
    assert ids() == [0, 1, 2]


@pytest.mark.parametrize("assigned_first", [False, True], ids=["nothing-assigned", "assigned"])
def test_a_replay_that_died_is_completed_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch, *, assigned_first: bool
) -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    dies(monkeypatch, lambda: fix(ONLY_2), assigned_first=assigned_first)
    assert ids() == [1]
    load(2, (4, 200))
    assert fix() == ((2, 3, 0) if assigned_first else (1, 3, 0))
    assert ids() == [1, 2, 3, 4]
    assert assigned() == ({1: 1, 2: 2} if assigned_first else {1: 3})


def test_a_replay_that_was_begun_needs_all_of_its_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    dies(monkeypatch, fix, assigned_first=True)
    with pytest.raises(LakesinkError, match="Replay 1 was begun with 2 letters, the repair returns 1 of them"):
        fix(ONLY_2)
    assert ids() == [1]
    assert fix() == (1, 2, 0)
    assert ids() == [1, 2, 3]


def test_two_replays_at_once_land_each_letter_once() -> None:
    """Both look before one of them assigns letters: the other one continues with these letters, or finds them done."""
    load(1, (1, 30), (2, 150), (3, -1))
    both, waited = Barrier(2), set()

    def together(letters: pa.Table, of: Table) -> Repaired:
        if get_ident() not in waited:
            waited.add(get_ident())
            both.wait(120)
        return aged_120()(letters, of)

    done: list[tuple[int, int, int]] = []
    threads = [Thread(target=lambda: done.append(fix(together))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 2}
    assert (len(done), sum(one[1] for one in done), {one[2] for one in done}) == (2, 2, {0})


def test_the_loser_of_a_race_continues_with_the_letters_of_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner assigns one letter and dies, between the look of the loser and its assignment."""
    load(1, (1, 30), (2, 150), (3, -1))

    def beaten(*arguments: Any) -> bool:
        monkeypatch.setattr("lakesink.sinks.iceberg.side.replay_loop.assign", assign)
        dies(monkeypatch, lambda: fix(ONLY_2), assigned_first=True)
        return assign(*arguments)

    monkeypatch.setattr("lakesink.sinks.iceberg.side.replay_loop.assign", beaten)
    assert fix() == (2, 2, 0)
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 1, 2: 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda letters: [*letters, *letters], "2 rows more than letters: a letter_id comes twice"),
        (lambda letters: [*letters, "x"], "1 row with a letter_id that it was not given"),
        (lambda letters: [*letters, None], "1 row with a letter_id that it was not given"),
    ],
)
def test_a_repair_that_returns_other_letters_commits_nothing(change: Any, said: str) -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    with pytest.raises(LakesinkError, match=said):
        fix(lambda letters, _: Repaired(change(letters["letter_id"].to_pylist()), pa.table({})))
    assert ids() == [1]
    assert fix() == (1, 2, 0)
    assert ids() == [1, 2, 3]


def test_a_replay_that_was_rolled_back_is_pending_again() -> None:
    load(1, (1, 30), (2, 150), (3, -1))
    assert fix(ONLY_2) == (1, 1, 1)
    assert fix() == (1, 1, 0)
    roll_back(TABLE, 2)
    assert ids() == [1]
    again = f"run the replay again: lakesink dead-letters {TABLE} --replay FIX.sql"
    for command in (["audit", TABLE], ["status", TABLE], ["doctor", TABLE, "--no-spark", "--no-write-probe"]):
        told = CliRunner().invoke(main, command)
        assert told.exit_code == 0, told.output
        assert again in " ".join(told.output.split())
        assert "RolledBack" not in told.output
        assert "rewind" not in told.output
    assert fix() == (2, 2, 0)
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 1, 2: 1}
    assert fix() == (0, 0, 0)


def test_a_replay_that_was_rolled_back_with_the_batch_of_a_letter_waits_for_that_batch() -> None:
    """The batch may come again with other letters."""
    load(1, (1, 30), (2, 150))
    load(2, (3, 150))
    assert fix() == (1, 2, 0)
    roll_back(TABLE, 2)
    assert fix() == (0, 0, 2)
    told = CliRunner().invoke(main, ["dead-letters", TABLE]).output
    assert "it waits for batches that the table lacks." in told
    assert ids() == [1]
    load(2, (3, 150))
    assert fix() == (1, 2, 0)
    assert ids() == [1, 2, 3]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("last", ["the repair", "the assignment"])
def test_a_replay_lands_on_no_state_of_the_table_without_the_batch_of_a_letter(
    monkeypatch: pytest.MonkeyPatch, last: str, *, begun: bool
) -> None:
    """The table is rolled back after the replay has looked at it. The batch may come again with other letters."""
    load(1, (1, 30))
    load(2, (2, 40), (3, 150))
    if begun:
        dies(monkeypatch, fix, assigned_first=True)
    commit = FencedCommit.commit

    def repair(letters: pa.Table, of: Table) -> Repaired:
        if last == "the repair":
            roll_back(TABLE)
        return aged_120()(letters, of)

    def commit_late(fence: Any, *batch: Any) -> Any:
        if ".".join(fence.load().name()) == TABLE and last == "the assignment":
            roll_back(TABLE)
        return commit(fence, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(FencedCommit, "commit", commit_late)
        assert fix(repair) == (0, 0, 1)
    assert ids() == [1]
    load(2, (2, 40), (3, 150))
    assert fix() == (1, 1, 0)
    assert ids() == [1, 2, 3]


def test_a_replay_that_waits_for_a_batch_holds_up_its_own_sink_only(tmp_path: Path) -> None:
    one = Bronze.make(tmp_path)
    other = Bronze(one.lake, "other", adds=100)
    other.run(0)
    one.run(0)
    head = one.head()
    one.run(1)
    assert one.replay() == 3
    maintenance.roll_back(one.lake, head)
    other.run(1)
    one.replay()
    assert {batch for batch, position in counted(one.lake) if position == 2} == {100, 101}
    one.run(1)
    one.replay()
    assert counted(one.lake) == expected(0, 1, 100, 101)


def test_letters_that_were_rolled_back_with_their_table_need_their_replays_rolled_back_too() -> None:
    load(1, (1, 30), (2, 150))
    load(2, (3, 150))
    assert fix() == (1, 2, 0)
    roll_back(TABLE, 2)
    roll_back(LETTERS)
    with pytest.raises(LakesinkError, match="lacks 1 letter of replay 1") as refused:
        fix()
    told = f"Drop {REPLAYS}: it has nothing else."
    assert refused.value.choices[0] == f"{told} Then run the replay again."
    assert f"If the table, {LETTERS} or {REPLAYS} was dropped" in refused.value.action
    shown = CliRunner().invoke(main, ["dead-letters", TABLE]).output
    assert f"Replay 1 cannot be completed: {LETTERS} lacks 1 of its letters. {told}" in shown
    assert "run it again" not in shown
    assert "--replay" not in shown
    [finding] = [one for one in lakesink.audit_table(TABLE).findings if one.code.name == "REPLAYS_DIFFER"]
    assert f"{LETTERS} lacks 1 letter of replay 1" in finding.found
    assert finding.found.endswith(told)
    connect(create=False).drop_table(REPLAYS)  # the first replay has no snapshot before it
    assert fix() == (1, 1, 0)
    load(2, (3, 150))
    assert fix() == (1, 1, 0)
    assert ids() == [1, 2, 3]


def test_no_replay_is_proposed_for_letters_of_a_batch_that_an_operator_left_out() -> None:
    load(1, (1, 30), (2, 150))
    load(2, (3, 150))
    roll_back(TABLE)
    with pytest.raises(BatchRefused) as refused:
        load(3, (4, 4))
    load(3, (4, 4), accept=offered(refused.value)["commit"])
    assert "--replay" in CliRunner().invoke(main, ["dead-letters", TABLE]).output
    assert fix() == (1, 1, 1)
    told = CliRunner().invoke(main, ["dead-letters", TABLE]).output
    assert "No replay takes 1 letter" in told
    assert "--replay" not in told
    assert CliRunner().invoke(main, ["audit", TABLE]).exit_code == 3


def test_a_rollback_behind_replays_names_their_table_and_its_snapshot_too() -> None:
    load(1, (1, 30), (2, 150))
    fix()
    load(2, (3, 150))
    load(3, (4, 150))
    fix()
    before = [load_table(connect(create=False), name).snapshots()[0].snapshot_id for name in (LETTERS, REPLAYS)]
    roll_back(TABLE, 3)
    with pytest.raises(BatchRefused) as refused:
        load(4, (5, 150))
    steps = f"Roll {LETTERS} back to snapshot {before[0]}. Roll {REPLAYS} back to snapshot {before[1]}."
    assert refused.value.choices[0].startswith(f"{steps} Append again every version")
    assert f"{REPLAYS} has 1 replay that it no longer has" in refused.value.data
    roll_back(LETTERS, 2)
    roll_back(REPLAYS)
    for version in (2, 3, 4):
        load(version, (version + 1, 150))
    assert fix() == (1, 3, 0)
    assert ids() == [1, 2, 3, 4, 5]
    assert lakesink.audit_table(TABLE).findings == ()


@pytest.mark.parametrize("lost", ["dropped", "renamed", "rolled back"])
def test_a_table_of_replays_that_is_lost_is_noticed(lost: str) -> None:
    load(1, (1, 30), (2, 150))
    fix()
    load(2, (3, 150))
    fix()
    catalog = connect(create=False)
    if lost == "dropped":
        catalog.drop_table(REPLAYS)
    elif lost == "renamed":
        catalog.rename_table(LETTERS, "demo.other__dead_letters")
    else:
        roll_back(REPLAYS)
    option: dict[str, Any] = {"dead_letter_table": "demo.other__dead_letters"} if lost == "renamed" else {}
    with pytest.raises(LakesinkError, match="LAKESINK_REPLAYS_DIFFER"):
        fix(**option)
    assert ids() == [1, 2, 3]
    if lost == "renamed":
        catalog.rename_table(REPLAYS, "demo.other__dead_letters__replays")
        assert fix(**option) == (0, 0, 0)
    [found] = lakesink.audit_table(TABLE).findings if lost == "rolled back" else [None]
    assert found is None or found.code.name == "REPLAYS_DIFFER"


def test_a_renamed_table_keeps_its_replays() -> None:
    load(1, (1, 30), (2, 150))
    fix()
    connect(create=False).rename_table(TABLE, "demo.persons")
    assert fix(table="demo.persons", dead_letter_table=LETTERS) == (0, 0, 0)
    assert ids("demo.persons") == [1, 2]


def test_dead_letters_that_are_made_again_are_replayed_with_their_own_numbers() -> None:
    load(1, (1, 30), (2, 150))
    fix()
    connect(create=False).drop_table(LETTERS)
    load(2, (3, 150))
    assert fix() == (1, 1, 0)
    assert fix() == (0, 0, 0)
    assert ids() == [1, 2, 3]


def test_tables_that_share_dead_letters_get_their_own_back() -> None:
    """Also if both have an application of one name, with the same versions and the same bad rows."""
    for table in (TABLE, "demo.others"):
        load(1, (1, 30), (2, 150), table=table, dead_letter_table="demo.bad")
        load(2, (3, 150), table=table, dead_letter_table="demo.bad")
    assert len(rows("demo.bad")) == 4
    assert fix(dead_letter_table="demo.bad") == (1, 2, 0)
    assert (ids(), ids("demo.others")) == ([1, 2, 3], [1])
    assert fix(table="demo.others", dead_letter_table="demo.bad") == (1, 2, 0)
    assert (ids(), ids("demo.others")) == ([1, 2, 3], [1, 2, 3])
    assert fix(dead_letter_table="demo.bad") == (0, 0, 0)


def test_letters_of_a_branch_go_to_that_branch() -> None:
    load(1, (1, 30), (2, 150))
    table = load_table(connect(create=False), TABLE)
    table.manage_snapshots().create_branch(table.snapshots()[-1].snapshot_id, "audit").commit()
    load(2, (3, 150), branch="audit")
    assert fix(branch="audit") == (1, 1, 0)
    assert ids() == [1]
    assert fix() == (1, 1, 0)
    assert ids() == [1, 2]
    in_branch = load_table(connect(create=False), TABLE).scan().use_ref("audit").to_arrow()["id"].to_pylist()
    assert sorted(in_branch) == [1, 3]


@pytest.mark.parametrize("lost", ["dropped", "rolled back"])
@pytest.mark.parametrize("behind", [(1,), (3,), (1, 3)])
def test_letters_are_not_replayed_from_an_older_state_of_their_table(
    monkeypatch: pytest.MonkeyPatch, lost: str, behind: tuple[int, ...]
) -> None:
    load(1, (1, 150))
    load(2, (2, 150))
    older = load_table(connect(create=False), LETTERS)
    if lost == "dropped":
        connect(create=False).drop_table(LETTERS)
        load(3, (3, 150))
    else:
        roll_back(LETTERS)
    count = 0

    def load_older(catalog: Any, name: str) -> Any:
        nonlocal count
        count += 1
        return older if count in behind else load_table(catalog, name)

    for function in ("load_table", "find_table"):
        monkeypatch.setattr(f"lakesink.sinks.iceberg.side.replay_loop.{function}", load_older)
    assert fix() == (1, 1, 0)
    assert ids() == [3 if lost == "dropped" else 1]
    assert count > len(behind)


def test_letters_do_not_go_to_another_table_of_the_name() -> None:
    load(1, (1, 150))

    def replaced(letters: pa.Table, of: Table) -> Repaired:
        connect(create=False).drop_table(TABLE)
        load(1, (5, 5))
        return aged_120()(letters, of)

    with pytest.raises(LakesinkError, match="replaced by another table") as refused:
        fix(replaced)
    assert refused.value.code == "LAKESINK_REPLAYS_DIFFER"
    assert ids() == [5]


def test_letters_of_a_batch_that_the_table_lacks_are_not_replayed_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch could be written again with other rows aside, after its letters were rolled back."""
    load(1, (1, 30), (2, 150))
    commit = FencedCommit.commit

    def only_letters(fence: Any, *batch: Any) -> Any:
        if ".".join(fence.load().name()) == TABLE:
            raise Died
        return commit(fence, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(FencedCommit, "commit", only_letters)
        with pytest.raises(Died):
            load(2, (3, 150), (4, 4))
    assert len(rows(LETTERS)) == 2
    assert fix() == (1, 1, 1)
    load(2, (3, 150), (4, 4))
    assert fix() == (1, 1, 0)
    assert ids() == [1, 2, 3, 4]


def test_a_table_of_replays_with_rows_of_others_is_refused() -> None:
    load(1, (1, 30), (2, 150), (3, 150))
    fix(ONLY_2)
    own = load_table(connect(create=False), REPLAYS)
    own.append(own.scan().to_arrow())
    with pytest.raises(LakesinkError, match="a row that no replay has written"):
        fix()
    connect(create=False).drop_table(REPLAYS)
    others = pa.table({"id": pa.array([0], pa.int64())})
    append(others, REPLAYS, SinkKey("x", kind=SinkKind.TXN), transaction_batch(1), Settings(create_table=True))
    with pytest.raises(LakesinkError, match="no table of replays"):
        fix()


def test_a_replayed_table_shows_what_it_was_replayed_from() -> None:
    load(1, (1, 30), (2, 150))
    fix()
    newest = load_table(connect(create=False), TABLE).snapshots()[-1]
    assert newest.summary is not None
    assert newest.summary["lakesink.replays-table"] == REPLAYS
    found = lakesink.history(TABLE)[-1]
    assert (found.kind, found.batch_id, found.rows) == ("txn", 1, 1)
    assert found.sink.startswith("dead-letters.replay.")


def test_the_command_shows_the_letters_of_one_of_the_tables_that_share_them() -> None:
    for table, bad in ((TABLE, 1), ("demo.others", 2)):
        load(1, (1, 30), *[(2, 150)] * bad, table=table, dead_letter_table="demo.bad")
    shown = CliRunner().invoke(main, ["dead-letters", TABLE, "--letters", "demo.bad"])
    assert "demo.bad in lakehouse: 1 dead letter\n" in shown.output
    assert "Not counted: 2 letters of other tables or branches." in shown.output
    connect(create=False).drop_table(TABLE)
    shown = CliRunner().invoke(main, ["dead-letters", TABLE, "--letters", "demo.bad"])
    assert "demo.bad in lakehouse: 3 dead letters\n" in shown.output


def test_the_command_names_a_replay_that_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    load(1, (1, 30), (2, 150))
    dies(monkeypatch, fix, assigned_first=True)
    shown = CliRunner().invoke(main, ["dead-letters", TABLE])
    assert "Replay 1 was begun and is not in the table" in shown.output
    assert shown.exit_code == 1


def test_the_command_refuses_filters_and_files_that_are_no_text(tmp_path: Path) -> None:
    query = tmp_path / "fix.sql"
    query.write_bytes(b"\xff")
    for options, said in ((["--sink", "x"], "do not limit a replay"), ([], "cannot be read")):
        told = CliRunner().invoke(main, ["dead-letters", TABLE, "--replay", str(query), *options])
        assert (told.exit_code, said in told.output) == (2, True), told.output


def test_the_command_decodes_documents_as_the_stream_did(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, Any] = {}

    def replayed(_: str, __: str, options: dict[str, Any]) -> Replayed:
        given.update(options)
        return Replayed(1, 1)

    monkeypatch.setattr("lakesink_tools.cli.run.dead_letters._replayed", replayed)
    (tmp_path / "fix.sql").write_text("SELECT letter_id, payload AS value FROM letters")
    wanted = {"decode": "avro", "schema_registry": "r.json", "binary_encoding": "hex", "rescue_column": "_rescued"}
    words = [word for name, value in wanted.items() for word in (f"--{name.replace('_', '-')}", value)]
    told = CliRunner().invoke(main, ["dead-letters", TABLE, "--replay", str(tmp_path / "fix.sql"), *words])
    assert told.exit_code == 0, told.output
    assert given == {**wanted, "catalog": None, "branch": "main", "dead_letter_table": LETTERS}
    told = CliRunner().invoke(main, ["dead-letters", TABLE, *words])
    assert (told.exit_code, "--decode goes with --replay" in told.output) == (2, True), told.output


def test_documents_that_nobody_decodes_are_told_apart_from_a_new_column() -> None:
    table = create_table(connect(), TABLE, AGES)
    check_no_documents(["id", "age"], table, Settings())
    for options in ({"decode": "json"}, {"schema_evolution": "add"}):
        check_no_documents(["value"], table, Settings.parse(options, entry=Entry.REPLAY))
    check_no_documents(
        ["value"], create_table(connect(), "demo.values", pa.schema([("value", pa.string())])), Settings()
    )
    with pytest.raises(LakesinkError, match="REPAIR_INVALID") as refused:
        check_no_documents(["Value"], table, Settings())
    assert "--decode json" in str(refused.value)
    assert "ALTER" not in str(refused.value)


def test_a_table_without_a_table_of_dead_letters_is_told_how_rows_are_put_aside() -> None:
    create_table(connect(), TABLE, AGES)
    told = CliRunner().invoke(main, ["dead-letters", TABLE])
    assert told.exit_code == 2, told.output
    assert f"no query has put rows of {TABLE} aside" in told.output
    assert "Did you mean" not in told.output


def test_letters_of_a_version_that_the_table_never_got_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    load(1, (1, 30), (2, 150))
    dies(monkeypatch, lambda: load(3, (3, 30), (4, 150)), assigned_first=True)
    assert fix() == (1, 1, 1)
    told = CliRunner().invoke(main, ["dead-letters", TABLE]).output
    assert "No replay takes 1 letter: the table does not have the batch" in told
    load(3, (3, 30), (4, 150))
    assert fix() == (1, 1, 0)
    assert ids() == [1, 2, 3, 4]
