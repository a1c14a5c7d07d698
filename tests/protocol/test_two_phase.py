"""The coordinator: decide for all, prepare all, one record, commit all in order; and all the ways it can stop."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from lakesink_protocol.coordinator import MAX_WRITES, run_batch
from lakesink_protocol.errors import (
    LONGEST_FIRST_LINE,
    BatchRefused,
    CommitUnresolved,
    LakesinkError,
    PartialBatch,
    Reason,
    WriteError,
)
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.two_phase import Durability, TaskWriter
from lakesink_protocol.votes import Votes
from tests.shelves import BATCH, Log, Open, Shelf, Step, World

REFUSED = BatchRefused(Reason.GAP, "batches are missing", data="Nothing.", action="Look.")
UNRESOLVED = CommitUnresolved("COMMIT_UNRESOLVED", "no answer", data="Unknown.", action="Start again.")
REJECTED = WriteError("RECEIPT_REJECTED", "a vote was rejected", data="Nothing.", action="Start again.")


@pytest.fixture
def world() -> World:
    return World()


def test_one_participant_is_decided_written_prepared_and_committed_in_this_order(world: World) -> None:
    outcomes = world.run(world.a)
    assert world.story == ["a.begin", "find", "write a", "a.pre_commit", "put", "a.commit", "landed"]
    assert isinstance(outcomes["a"], Committed)
    assert world.a.shelf == {4: {"receipts": ["a/0/3", "a/1/3"]}}


@pytest.mark.parametrize(("x", "y"), [("a", "b"), ("b", "a")])
def test_all_are_decided_then_all_prepared_under_one_record_then_all_committed_as_ordered(
    world: World, x: str, y: str
) -> None:
    outcomes = world.run(getattr(world, x), getattr(world, y))
    assert world.story == [
        *(f"{x}.begin", f"{y}.begin", "find", f"write {x}+{y}", f"{x}.pre_commit", f"{y}.pre_commit"),
        *("put", f"{x}.commit", f"{y}.commit", "landed"),
    ]
    assert set(outcomes) == set(world.log.records[4]) == {"a", "b"}


def test_the_log_of_the_last_participant_keeps_the_record_because_it_is_pending_as_long_as_any(world: World) -> None:
    world.b.log = Log([])
    world.b.fails = {"commit": [OSError("power")]}
    with pytest.raises(PartialBatch):
        world.run()
    assert (set(world.b.log.records[4]), world.log.records) == ({"a", "b"}, {})
    assert world.run()["b"] == Committed(1, 2, 1, 1, recovered=True, accepted=None, attempts=1)
    assert world.b.log.story == ["find", "put", "find", "landed"]


def test_a_batch_that_is_everywhere_runs_no_job(world: World) -> None:
    world.run()
    assert world.run() == {"a": AlreadyCommitted(4), "b": AlreadyCommitted(4)}
    assert world.story == ["a.begin", "b.begin"]


def test_only_those_that_lack_the_batch_are_written(world: World) -> None:
    world.a.shelf[4] = {}
    outcomes = world.run()
    assert outcomes["a"] == AlreadyCommitted(4)
    assert isinstance(outcomes["b"], Committed)
    assert "write b" in world.story
    assert "a.commit" not in world.story


def test_a_participant_without_rows_to_write_votes_without_a_job(world: World) -> None:
    world.a.adds_rows = False
    world.run(world.a)
    assert world.told("write") == 0
    assert world.a.shelf == {4: {"receipts": []}}


def test_what_an_earlier_run_prepared_is_committed_without_a_job(world: World) -> None:
    world.a.fails["commit"] = [UNRESOLVED]
    with pytest.raises(CommitUnresolved):
        world.run()
    outcomes = world.run()
    assert world.story == ["a.begin", "b.begin", "find", "a.recover", "b.recover", "a.commit", "b.commit", "landed"]
    assert all(isinstance(outcome, Committed) and outcome.recovered for outcome in outcomes.values())


def test_an_error_of_rows_gets_the_number_of_the_batch(world: World) -> None:
    twice = WriteError("KEY_TWICE", "1 key (id) came more than once.", action="Name a column.", details=["id=7"])

    def refuse(_: Mapping[str, TaskWriter]) -> Votes:
        raise twice

    with pytest.raises(WriteError) as refused:
        run_batch(BATCH, (world.a,), refuse)
    assert refused.value.data.startswith("Nothing of batch 4 is in the table;")
    assert "\n  - id=7\n  Data: Nothing of batch 4 is" in str(refused.value)


HALVES: dict[str, Callable[[World], object]] = {
    "no record": lambda world: world.log.records.clear(),
    "not the first one's": lambda world: world.log.records.update({4: {"b": {"receipts": []}}}),
    "not the second one's": lambda world: world.log.records.update({4: {"a": {"receipts": []}}}),
    "the first cannot use it": lambda world: setattr(world.a, "usable", False),
    "the second cannot use it": lambda world: setattr(world.b, "usable", False),
    "the second must be redone": lambda world: setattr(world.b, "durability", Durability.MUST_BE_REDONE),
}


@pytest.mark.parametrize("half", HALVES)
def test_half_a_record_is_none_and_everything_is_written_again(world: World, half: str) -> None:
    world.a.fails["commit"] = [UNRESOLVED]
    with pytest.raises(CommitUnresolved):
        world.run()
    HALVES[half](world)
    outcomes = world.run()
    assert "write a+b" in world.story
    assert not any(isinstance(outcome, Committed) and outcome.recovered for outcome in outcomes.values())


def named_in_an_unusable_record(world: World) -> Shelf:
    """The tasks of an earlier run wrote for it; those of this run have no rows for it."""
    named = Shelf("c", world.story, world.log, fails={"commit": [UNRESOLVED]})

    def write_for_it_too(writers: Mapping[str, TaskWriter]) -> Votes:
        return Votes.in_order({name: [b"0 rows"] for name in (*writers, "c")})

    with pytest.raises(CommitUnresolved):
        run_batch(BATCH, (world.a, world.b), write_for_it_too, lambda _: named)
    world.a.usable = False
    world.story.clear()
    return named


def test_one_that_only_an_unusable_record_names_may_have_the_batch_and_is_asked_again(world: World) -> None:
    named = named_in_an_unusable_record(world)
    outcomes = run_batch(BATCH, (world.a, world.b), world.write, lambda _: named)
    assert outcomes.keys() == {"a", "b", "c"}
    assert world.story[world.story.index("write a+b") + 1 :][:2] == ["c.begin", "c.pre_commit"]
    assert world.told("c.abort") == 1


def test_one_that_only_an_unusable_record_names_is_aborted_once_though_the_batch_fails_later(world: World) -> None:
    named = named_in_an_unusable_record(world)
    world.error = REJECTED
    with pytest.raises(WriteError):
        run_batch(BATCH, (world.a, world.b), world.write, lambda _: named)
    assert sorted(line for line in world.story if "abort" in line) == ["a.abort", "b.abort", "c.abort"]


def test_one_that_must_be_redone_and_has_landed_does_not_keep_the_others_from_recovering(world: World) -> None:
    world.a.durability = Durability.MUST_BE_REDONE
    world.b.fails["commit"] = [UNRESOLVED]
    with pytest.raises(PartialBatch):
        world.run()
    outcomes = world.run()
    assert outcomes["a"] == AlreadyCommitted(4)
    assert isinstance(outcomes["b"], Committed)
    assert outcomes["b"].recovered
    assert world.told("write") == 0


def test_what_must_be_redone_is_never_recovered(world: World) -> None:
    world.a.durability = Durability.MUST_BE_REDONE
    world.a.fails["commit"] = [UNRESOLVED]
    with pytest.raises(CommitUnresolved):
        world.run(world.a)
    world.run(world.a)
    assert world.story == ["a.begin", "write a", "a.pre_commit", "put", "a.commit", "landed"]


@pytest.mark.parametrize("refusing", ["a", "b"])
def test_a_refusal_before_anything_was_written_writes_nothing(world: World, refusing: str) -> None:
    getattr(world, refusing).fails["begin"] = [REFUSED]
    with pytest.raises(BatchRefused):
        world.run()
    assert not world.told("write") + world.told("put") + world.told("commit")
    assert world.told("a.abort") == (1 if refusing == "b" else 0)
    assert world.told("b.abort") == 0


FAILURES: dict[str, Callable[[World], object]] = {
    "job": lambda world: setattr(world, "error", REJECTED),
    "job is interrupted": lambda world: setattr(world, "error", KeyboardInterrupt()),
    "first vote": lambda world: world.a.fails.update(pre_commit=[REJECTED]),
    "second vote": lambda world: world.b.fails.update(pre_commit=[REJECTED]),
    "record": lambda world: setattr(world.log, "error", OSError("disk full")),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_before_the_commit_aborts_everyone_once_and_commits_nothing(world: World, failure: str) -> None:
    FAILURES[failure](world)
    with pytest.raises((LakesinkError, KeyboardInterrupt, OSError)):
        world.run()
    assert [line for line in world.story if "abort" in line] == ["a.abort", "b.abort"]
    assert not world.told(".commit") + world.told("landed")
    assert world.a.shelf == world.b.shelf == world.log.records == {}


def test_a_batch_without_some_of_its_input_is_not_written(world: World) -> None:
    begun = world.a.begin(BATCH)
    assert isinstance(begun, Open)
    world.a.check_inputs(BATCH, begun)
    with pytest.raises(BatchRefused, match="LAKESINK_INPUT_MISSING"):
        world.a.check_inputs(replace(BATCH, missing_inputs=("a.csv",)), begun)


def test_a_failure_of_the_recovery_aborts_too(world: World) -> None:
    world.log.records[4] = {"a": {"receipts": []}, "b": {"receipts": []}}
    world.b.fails["recover"] = [REFUSED]
    with pytest.raises(BatchRefused):
        world.run()
    assert (world.told("abort"), world.told("write"), world.told(".commit")) == (2, 0, 0)


@pytest.mark.parametrize("error", [REFUSED, UNRESOLVED])
def test_if_nothing_landed_the_first_ones_error_stands_as_it_is(world: World, error: LakesinkError) -> None:
    world.a.fails["commit"] = [error]
    with pytest.raises(type(error)) as raised:
        world.run()
    assert raised.value is error
    assert not world.told("b.commit") + world.told("abort") + world.told("landed")
    assert set(world.log.records[4]) == {"a", "b"}


@pytest.mark.parametrize("error", [REFUSED, UNRESOLVED])
def test_if_a_later_one_fails_the_error_names_who_landed_and_the_replay_skips_them(
    world: World, error: LakesinkError
) -> None:
    world.b.fails["commit"] = [error]
    with pytest.raises(PartialBatch) as raised:
        world.run()
    assert raised.value.landed == ("a",)
    lack = {REFUSED: "did not", UNRESOLVED: "may lack it"}
    assert raised.value.what == f"b failed ({error.code}): a committed the batch, b {lack[error]}."
    assert raised.value.__cause__ is error
    assert error.what in str(raised.value)
    assert not world.told("abort") + world.told("landed")
    outcomes = world.run()
    assert outcomes["a"] == AlreadyCommitted(4)
    assert isinstance(outcomes["b"], Committed)
    assert outcomes["b"].recovered
    assert world.told("a.commit") == 0


def test_whatever_a_later_one_raises_who_landed_is_named(world: World) -> None:
    world.b.fails["commit"] = [OSError("the store of postgresql://lake:hunter2@db/x is away")]
    with pytest.raises(PartialBatch) as raised:
        world.run()
    assert raised.value.landed == ("a",)
    assert "is away" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert isinstance(world.run()["b"], Committed)


def test_whatever_the_first_one_raises_leaves_as_it_is(world: World) -> None:
    error = OSError("away")
    world.a.fails["commit"] = [error]
    with pytest.raises(OSError, match="away") as raised:
        world.run()
    assert raised.value is error


STEPS = {"begin": "orders@dev: ", "pre_commit": "orders@dev: ", "recover": "orders@dev: ", "commit": "sales: "}


@pytest.mark.parametrize("step", STEPS)
def test_the_error_of_one_of_several_targets_begins_with_its_table_and_its_branch_if_not_main(
    world: World, step: str
) -> None:
    world.a.name, world.b.name = "sales@main", "orders@dev"
    if step == "recover":
        world.log.records[4] = {"sales@main": {"receipts": []}, "orders@dev": {"receipts": []}}
    failing = world.a if step == "commit" else world.b
    failing.fails[step] = [BatchRefused(Reason.GAP, "w" * 300, data="Nothing.", action="Look.")]
    with pytest.raises(BatchRefused) as raised:
        world.run()
    first = str(raised.value).splitlines()[0]
    assert first.startswith(f"[LAKESINK_GAP] {STEPS[step]}www")
    assert len(first) == LONGEST_FIRST_LINE
    assert raised.value.what in str(raised.value)


def test_the_error_of_the_only_target_is_not_changed(world: World) -> None:
    world.a.fails["begin"] = [BatchRefused(Reason.GAP, "batches are missing", data="Nothing.", action="Look.")]
    with pytest.raises(BatchRefused) as raised:
        world.run(world.a)
    assert raised.value.what == "batches are missing"


def test_a_history_that_always_moves_names_its_target(world: World) -> None:
    world.a.moved_on = 99
    with pytest.raises(CommitUnresolved, match=r"\[LAKESINK_COMMIT_UNRESOLVED\] a: Batch 4 was prepared"):
        world.run()


def test_a_batch_whose_history_moved_is_written_again(world: World) -> None:
    world.a.moved_on = 1
    outcomes = world.run(world.a)
    assert world.told("write a") == 2
    assert outcomes["a"] == Committed(1, 2, 1, 1, recovered=False, accepted=None, attempts=1)


def test_a_history_that_always_moves_ends_unresolved(world: World) -> None:
    world.a.moved_on = 99
    with pytest.raises(CommitUnresolved):
        world.run(world.a)
    assert world.told("write a") == MAX_WRITES
    assert world.a.shelf == {}


def test_if_only_a_later_one_must_be_written_again_the_first_keeps_its_outcome(world: World) -> None:
    world.b.moved_on = 1
    outcomes = world.run()
    assert [line for line in world.story if "write" in line] == ["write a+b", "write b"]
    assert all(isinstance(outcome, Committed) for outcome in outcomes.values())
    assert world.told("a.commit") == 1


AFTER_ONE_LANDED: dict[str, dict[str, list[Step]]] = {
    "commit": {"commit": [None, UNRESOLVED]},
    "refusal": {"begin": [None, REFUSED]},
    "vote": {"pre_commit": [None, REJECTED]},
}


@pytest.mark.parametrize("failure", AFTER_ONE_LANDED)
def test_who_landed_is_named_also_if_another_one_had_to_be_written_again(world: World, failure: str) -> None:
    world.b.moved_on = 1
    world.b.fails = AFTER_ONE_LANDED[failure]
    with pytest.raises(PartialBatch) as raised:
        world.run()
    assert raised.value.landed == ("a",)


def test_who_landed_is_named_also_if_the_job_dies_that_writes_for_another_one_again(world: World) -> None:
    world.b.moved_on = 1
    world.b.fails = {"commit": [None]}
    write = world.write

    def dies_the_second_time(writers: Mapping[str, TaskWriter]) -> Votes:
        if world.told("write"):
            raise ZeroDivisionError("executor gone")
        return write(writers)

    with pytest.raises(PartialBatch, match="executor gone") as raised:
        run_batch(BATCH, (world.a, world.b), dies_the_second_time)
    assert raised.value.landed == ("a",)


def test_a_job_that_returns_no_votes_is_told_what_to_return(world: World) -> None:
    with pytest.raises(TypeError, match=r"returns lakesink\.two_phase\.Votes, not dict"):
        run_batch(BATCH, (world.a,), lambda _: {"a": [b"receipt"]})  # type: ignore[arg-type,return-value] # as before Votes
    assert world.told("abort") == 1


def test_who_landed_is_named_also_if_another_ones_history_always_moves(world: World) -> None:
    world.b.moved_on = 99
    with pytest.raises(PartialBatch) as raised:
        world.run()
    assert raised.value.landed == ("a",)
