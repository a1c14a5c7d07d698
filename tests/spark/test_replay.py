"""Repaired dead letters land in the table that they came from, each once, whatever fails on the way."""

from collections import Counter
from collections.abc import Callable
from threading import Barrier, Thread, get_ident
from typing import Any

import pytest

import lakesink
from lakesink.sinks.iceberg.pending import first_letters
from lakesink.sinks.iceberg.replays import assign
from lakesink.spark.repair import repaired
from lakesink_catalog.commit.fence import FencedCommit
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import LakesinkError, SettingsError

pytestmark = pytest.mark.usefixtures("home")
TABLE, LETTERS, REPLAYS = "demo.people", "demo.people__dead_letters", "demo.people__dead_letters__replays"
COLUMNS = "id LONG, age INT"
VALID_AGE = {"valid_age": ("age BETWEEN 0 AND 120", "quarantine")}
FIX = "SELECT letter_id, row.id, 120 AS age FROM letters"


class Died(BaseException):
    """The driver dies."""


def load(spark: Any, version: int, *rows: tuple[int, int], table: str = TABLE, **options: Any) -> None:
    found = spark.createDataFrame(list(rows), COLUMNS)
    limits: dict[str, Any] = {"max_dead_letter_ratio": 1, "create_table": True, "verbose": False}
    lakesink.append(found, table, txn=("load", version), expect=VALID_AGE, **limits, **options)


def fix(spark: Any, repair: Any = FIX, **options: Any) -> tuple[int, int, int]:
    done = lakesink.replay_dead_letters(spark, TABLE, repair, verbose=False, **options)
    return done.replays, done.letters, done.pending


def rows(table: str = TABLE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_table(connect(create=False), table).scan().to_arrow().to_pylist()
    return found


def ids(table: str = TABLE) -> list[int]:
    return sorted(row["id"] for row in rows(table))


def assigned() -> Counter[int]:
    found = rows(REPLAYS)
    assert len({row["letter_id"] for row in found}) == len(found)
    return Counter(row["replay"] for row in found)


def roll_back(name: str, snapshots: int = 1) -> None:
    table = load_table(connect(create=False), name)
    kept = table.history()[-1 - snapshots].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(kept).commit()


def dies(monkeypatch: pytest.MonkeyPatch, repair: Callable[[], Any], *, assigned_first: bool) -> None:
    """Run a replay whose driver dies before the replay commits, with its letters assigned or not."""
    commit = FencedCommit.commit

    def to_replays_only(fence: Any, *batch: Any) -> Any:
        name = ".".join(fence.load().name())
        if name == (TABLE if assigned_first else REPLAYS):
            raise Died
        return commit(fence, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(FencedCommit, "commit", to_replays_only)
        with pytest.raises(Died):
            repair()


@pytest.mark.parametrize(
    "repair", [FIX, lambda letters: letters.selectExpr("letter_id", "row.id", "120 AS age")], ids=["sql", "function"]
)
def test_each_letter_lands_once_also_if_the_replay_is_called_again(spark: Any, repair: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    assert fix(spark, repair) == (1, 2, 0)
    assert fix(spark, repair) == (0, 0, 0)
    load(spark, 2, (4, 200), (5, 5))
    assert fix(spark, repair) == (1, 1, 0)
    assert sorted((row["id"], row["age"]) for row in rows()) == [(1, 30), (2, 120), (3, 120), (4, 120), (5, 5)]
    assert assigned() == {1: 2, 2: 1}
    assert not lakesink.audit_table(TABLE).findings


def test_a_letter_that_the_repair_leaves_out_stays_pending(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    assert fix(spark, f"{FIX} WHERE row.age > 0") == (1, 1, 1)
    assert fix(spark, f"{FIX} WHERE false") == (0, 0, 1)
    assert ids() == [1, 2]
    assert fix(spark) == (1, 1, 0)
    assert ids() == [1, 2, 3]


def test_many_letters_are_replayed_in_parts(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesink.spark.replay.first_letters", lambda of, wanted: first_letters(of, wanted, 2))
    load(spark, 1, *((at, 150) for at in range(5)))
    assert fix(spark, f"{FIX} WHERE row.id <> 1") == (3, 4, 1)
    assert ids() == [0, 2, 3, 4]
    assert sum(assigned().values()) == 4


def test_a_part_has_a_limit_of_bytes_too(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesink.spark.replay.first_letters", lambda of, wanted: first_letters(of, wanted, 100, 1))
    for version in range(3):
        load(spark, version, (version, 150))
    assert fix(spark) == (3, 3, 0)
    assert ids() == [0, 1, 2]


@pytest.mark.parametrize("assigned_first", [False, True], ids=["nothing-assigned", "assigned"])
def test_a_replay_that_died_is_completed_by_the_next_call(
    spark: Any, monkeypatch: pytest.MonkeyPatch, *, assigned_first: bool
) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    dies(monkeypatch, lambda: fix(spark, f"{FIX} WHERE row.id = 2"), assigned_first=assigned_first)
    assert ids() == [1]
    load(spark, 2, (4, 200))
    assert fix(spark) == ((2, 3, 0) if assigned_first else (1, 3, 0))
    assert ids() == [1, 2, 3, 4]
    assert assigned() == ({1: 1, 2: 2} if assigned_first else {1: 3})


def test_a_replay_that_was_begun_needs_all_of_its_letters(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    dies(monkeypatch, lambda: fix(spark), assigned_first=True)
    with pytest.raises(LakesinkError, match="Replay 1 was begun with 2 letters, the repair returns 1 of them"):
        fix(spark, f"{FIX} WHERE row.id = 2")
    assert ids() == [1]
    assert fix(spark) == (1, 2, 0)
    assert ids() == [1, 2, 3]


def test_two_replays_at_once_land_each_letter_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look before one of them assigns letters: the other one continues with these letters, or finds them done."""
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    both, waited = Barrier(2), set()

    def together(*arguments: Any) -> Any:
        if get_ident() not in waited:
            waited.add(get_ident())
            both.wait(120)
        return repaired(*arguments)

    monkeypatch.setattr("lakesink.spark.replay.repaired", together)
    done: list[tuple[int, int, int]] = []
    threads = [Thread(target=lambda: done.append(fix(spark))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 2}
    assert (len(done), sum(one[1] for one in done), {one[2] for one in done}) == (2, 2, {0})


def test_the_loser_of_a_race_continues_with_the_letters_of_the_winner(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winner assigns one letter and dies, between the look of the loser and its assignment."""
    load(spark, 1, (1, 30), (2, 150), (3, -1))

    def beaten(*arguments: Any) -> bool:
        monkeypatch.setattr("lakesink.spark.replay.assign", assign)
        dies(monkeypatch, lambda: fix(spark, f"{FIX} WHERE row.id = 2"), assigned_first=True)
        return assign(*arguments)

    monkeypatch.setattr("lakesink.spark.replay.assign", beaten)
    assert fix(spark) == (2, 2, 0)
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 1, 2: 1}


@pytest.mark.parametrize(
    ("repair", "said"),
    [
        (f"{FIX} UNION ALL {FIX}", "a letter_id comes twice"),
        (f"{FIX} UNION ALL SELECT 'x', 1L, 1", "1 row with a letter_id that it was not given"),
        (f"{FIX} UNION ALL SELECT NULL, 1L, 1", "1 row with a letter_id that it was not given"),
        ("SELECT row.* FROM letters", "returns 0 columns letter_id"),
        ("SELECT nothing FROM letters", "Spark cannot run the repair"),
        (lambda _: None, "returned a NoneType"),
        ("SELECT letter_id, row.id, 'x' AS age FROM letters", "SCHEMA_MISMATCH"),
        ("SELECT letter_id, row.id, 1 AS age, 2 AS other FROM letters", "other"),
        ("SELECT letter_id, row.id, 1 AS age, INTERVAL 1 DAY AS span FROM letters", "TYPE_UNSUPPORTED"),
    ],
)
def test_a_repair_that_is_wrong_commits_nothing(spark: Any, repair: Any, said: str) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    with pytest.raises(LakesinkError, match=said):
        fix(spark, repair)
    assert ids() == [1]
    assert fix(spark) == (1, 2, 0)
    assert ids() == [1, 2, 3]


def test_a_row_that_cannot_be_written_commits_nothing_and_assigns_nothing(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    with pytest.raises(LakesinkError, match="EXPECTATION_UNMET"):
        fix(spark, "SELECT letter_id, row.* FROM letters", expect={"valid_age": "age BETWEEN 0 AND 120"})
    assert ids() == [1]
    assert fix(spark, f"{FIX} WHERE row.id = 3", expect={"valid_age": "age BETWEEN 0 AND 120"}) == (1, 1, 1)
    assert ids() == [1, 3]


def test_the_rows_that_were_checked_are_those_that_land(spark: Any) -> None:
    """A repair that returns other rows each time it is evaluated is evaluated once."""
    load(spark, 1, (1, 30), *((at, 150) for at in range(2, 40)))
    replayed = fix(spark, f"{FIX} WHERE rand() < 0.5")
    assert sum(assigned().values()) == replayed[1] == 38 - replayed[2] == len(ids()) - 1
    landed = set(ids())
    fix(spark)
    assert ids() == sorted(landed | set(range(1, 40)))


@pytest.mark.parametrize("option", [{"on_malformed": "quarantine"}, {"expect": VALID_AGE}])
def test_a_replay_cannot_put_rows_aside(spark: Any, option: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    with pytest.raises(SettingsError, match="cannot put rows aside"):
        fix(spark, **option)


def test_a_view_of_the_user_with_the_name_of_the_letters_is_there_afterwards(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    spark.range(3).createOrReplaceTempView("letters")
    fix(spark)
    assert spark.table("letters").count() == 3
    spark.catalog.dropTempView("letters")
    fix(spark)
    assert not spark.catalog.tableExists("letters")


def test_a_replay_that_was_rolled_back_is_pending_again(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, -1))
    assert fix(spark, f"{FIX} WHERE row.id = 2") == (1, 1, 1)
    assert fix(spark) == (1, 1, 0)
    roll_back(TABLE, 2)
    assert ids() == [1]
    assert fix(spark) == (2, 2, 0)
    assert ids() == [1, 2, 3]
    assert assigned() == {1: 1, 2: 1}
    assert fix(spark) == (0, 0, 0)


def test_letters_that_were_rolled_back_with_their_table_need_their_replays_rolled_back_too(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    load(spark, 2, (3, 150))
    assert fix(spark) == (1, 2, 0)
    roll_back(TABLE, 2)
    roll_back(LETTERS)
    with pytest.raises(LakesinkError, match="lacks 1 letter of replay 1"):
        fix(spark)
    connect(create=False).drop_table(REPLAYS)  # the first replay has no snapshot before it
    assert fix(spark) == (1, 1, 0)
    load(spark, 2, (3, 150))
    assert fix(spark) == (1, 1, 0)
    assert ids() == [1, 2, 3]


@pytest.mark.parametrize("lost", ["dropped", "renamed", "rolled back"])
def test_a_table_of_replays_that_is_lost_is_noticed(spark: Any, lost: str) -> None:
    load(spark, 1, (1, 30), (2, 150))
    fix(spark)
    load(spark, 2, (3, 150))
    fix(spark)
    catalog = connect(create=False)
    if lost == "dropped":
        catalog.drop_table(REPLAYS)
    elif lost == "renamed":
        catalog.rename_table(LETTERS, "demo.other__dead_letters")
    else:
        roll_back(REPLAYS)
    option = {"dead_letter_table": "demo.other__dead_letters"} if lost == "renamed" else {}
    with pytest.raises(LakesinkError, match="LAKESINK_REPLAYS_DIFFER"):
        fix(spark, **option)
    assert ids() == [1, 2, 3]
    if lost == "renamed":
        catalog.rename_table(REPLAYS, "demo.other__dead_letters__replays")
        assert fix(spark, **option) == (0, 0, 0)
    [found] = lakesink.audit_table(TABLE).findings if lost == "rolled back" else [None]
    assert found is None or found.code.name == "REPLAYS_DIFFER"


def test_a_renamed_table_keeps_its_replays(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    fix(spark)
    connect(create=False).rename_table(TABLE, "demo.persons")
    done = lakesink.replay_dead_letters(spark, "demo.persons", FIX, dead_letter_table=LETTERS, verbose=False)
    assert (done.replays, done.pending) == (0, 0)
    assert ids("demo.persons") == [1, 2]


def test_dead_letters_that_are_made_again_are_replayed_with_their_own_numbers(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    fix(spark)
    connect(create=False).drop_table(LETTERS)
    load(spark, 2, (3, 150))
    assert fix(spark) == (1, 1, 0)
    assert fix(spark) == (0, 0, 0)
    assert ids() == [1, 2, 3]


def test_tables_that_share_dead_letters_get_their_own_back(spark: Any) -> None:
    """Also if both have an application of one name, with the same versions and the same bad rows."""
    for table in (TABLE, "demo.others"):
        load(spark, 1, (1, 30), (2, 150), table=table, dead_letter_table="demo.bad")
        load(spark, 2, (3, 150), table=table, dead_letter_table="demo.bad")
    assert len(rows("demo.bad")) == 4
    assert fix(spark, dead_letter_table="demo.bad") == (1, 2, 0)
    assert (ids(), ids("demo.others")) == ([1, 2, 3], [1])
    done = lakesink.replay_dead_letters(spark, "demo.others", FIX, dead_letter_table="demo.bad", verbose=False)
    assert (done.letters, done.pending) == (2, 0)
    assert (ids(), ids("demo.others")) == ([1, 2, 3], [1, 2, 3])
    assert fix(spark, dead_letter_table="demo.bad") == (0, 0, 0)


def test_letters_of_a_batch_that_the_table_lacks_are_not_replayed_before_it(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch could be written again with other rows aside, after its letters were rolled back."""
    load(spark, 1, (1, 30), (2, 150))
    commit = FencedCommit.commit

    def only_letters(fence: Any, *batch: Any) -> Any:
        if ".".join(fence.load().name()) == TABLE:
            raise Died
        return commit(fence, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(FencedCommit, "commit", only_letters)
        with pytest.raises(Died):
            load(spark, 2, (3, 150), (4, 4))
    assert len(rows(LETTERS)) == 2
    assert fix(spark) == (1, 1, 1)
    load(spark, 2, (3, 150), (4, 4))
    assert fix(spark) == (1, 1, 0)
    assert ids() == [1, 2, 3, 4]


def test_a_table_of_replays_with_rows_of_others_is_refused(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150), (3, 150))
    fix(spark, f"{FIX} WHERE row.id = 2")
    own = load_table(connect(create=False), REPLAYS)
    own.append(own.scan().to_arrow())
    with pytest.raises(LakesinkError, match="a row that no replay has written"):
        fix(spark)
    connect(create=False).drop_table(REPLAYS)
    lakesink.append(spark.range(1), REPLAYS, txn=("x", 1), create_table=True, verbose=False)
    with pytest.raises(LakesinkError, match="no table of replays"):
        fix(spark)


def test_a_replayed_table_shows_what_it_was_replayed_from(spark: Any) -> None:
    load(spark, 1, (1, 30), (2, 150))
    fix(spark)
    newest = load_table(connect(create=False), TABLE).snapshots()[-1]
    assert newest.summary is not None
    assert newest.summary["lakesink.replays-table"] == REPLAYS
    found = lakesink.history(TABLE)[-1]
    assert (found.kind, found.batch_id, found.rows) == ("txn", 1, 1)
    assert found.sink.startswith("dead-letters.replay.")
