"""A batch of several targets, some named by its rows alone, that adds rows and deletes others, through the coordinator.

The targets stand in for what comes later: the files and deletes are not real, the coordinator and the receipts are.
"""

import pytest

from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import PartialBatch, WriteError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from proof.seam.targets import MAIN, Died, Driver, Sink, World, batch, expected

BATCHES = 3


def lives_for(world: World, batch_id: int, calls: int) -> bool:
    """True if a driver that lives for so many calls gets to the end of the batch."""
    try:
        Driver(world, calls).run(batch_id)
    except Died:
        return False
    return True


def calls_of(batch_id: int) -> int:
    """How many calls a batch takes if nothing happens."""
    world = World()
    for earlier in range(batch_id):
        Driver(world).run(earlier)
    driver = Driver(world)
    driver.run(batch_id)
    return driver.made


def test_rows_find_their_targets_and_replace_older_ones() -> None:
    world = World()
    for batch_id in range(BATCHES):
        outcomes = Driver(world).run(batch_id)
        assert list(outcomes) == ["of-1", "of-2", MAIN]
        assert world.seen() == expected(batch_id + 1)
    assert world.jobs == BATCHES
    assert len(world.store.deletes) > 0


@pytest.mark.parametrize("batch_id", range(BATCHES))
def test_a_driver_that_dies_at_any_call_leaves_every_target_old_or_new_and_the_next_one_completes_all(
    batch_id: int,
) -> None:
    for calls in range(calls_of(batch_id)):
        for second in (0, 3, 6, 10**6):
            world = World()
            for earlier in range(batch_id):
                Driver(world).run(earlier)
            assert not lives_for(world, batch_id, calls)
            old, new = expected(batch_id), expected(batch_id + 1)
            for name, rows in world.seen().items():
                assert rows in (old.get(name), new[name]), (calls, name)
            if MAIN in world.targets and batch_id in world.targets[MAIN].batches:
                assert world.seen() == new, "the main target has the batch, another one does not"
            if not lives_for(world, batch_id, second):
                Driver(world).run(batch_id)
            assert world.seen() == new, calls
            Driver(world).run(batch_id + 1)
            assert world.seen() == expected(batch_id + 2), calls


def test_a_batch_that_was_prepared_is_completed_without_its_rows() -> None:
    world = World()
    Driver(world).run(0)
    whole = calls_of(1)
    with pytest.raises(Died):
        Driver(world, whole - 3).run(1)  # the last target is not committed yet
    outcomes = Driver(world).run(1)
    assert world.jobs == 2
    main = outcomes[MAIN]
    assert isinstance(outcomes["of-1"], AlreadyCommitted)
    assert isinstance(main, Committed)
    assert main.recovered


class Refusing(Sink):
    """The catalog does not answer."""

    def commit(self, *_: object) -> None:  # type: ignore[override] # always raises
        raise OSError("no answer")


def test_a_target_that_fails_after_others_is_named_with_them() -> None:
    world = World()
    driver = Driver(world)
    driver.batch_id = 0
    with pytest.raises(PartialBatch) as partial:
        run_batch(batch(0), [Refusing(MAIN, driver)], driver.write, lambda name: Sink(name, driver))
    assert partial.value.landed == ("of-1", "of-2")
    assert partial.value.what == (
        "main failed (LAKESINK_COMMIT_UNRESOLVED): of-1, of-2 committed the batch, main may lack it."
    )
    assert set(Driver(world).run(0)) == {"of-1", "of-2", MAIN}
    assert (world.seen(), world.jobs) == (expected(1), 1)


def test_a_target_that_is_opened_by_another_name_is_refused_before_its_rows_are_left_out() -> None:
    world = World()
    driver = Driver(world)
    driver.batch_id = 0
    with pytest.raises(WriteError, match="a task wrote for of-1, but the name of that target is of-1@main"):
        run_batch(batch(0), [Sink(MAIN, driver)], driver.write, lambda name: Sink(f"{name}@main", driver))
    assert world.seen() == {}


def test_a_target_that_no_query_has_is_refused_by_name_before_anything_is_committed() -> None:
    world = World()
    driver = Driver(world)
    driver.batch_id = 0
    with pytest.raises(WriteError) as refused:
        run_batch(batch(0), [Sink(MAIN, driver)], driver.write)
    assert (
        refused.value.what == "A task's receipt was rejected: a task wrote for of-1, which is no target of this query."
    )
    assert world.seen() == {}


def test_a_record_of_targets_that_the_query_no_longer_has_refuses_the_batch_before_its_rows_are_written_again() -> None:
    world = World()
    Driver(world).run(0)
    with pytest.raises(Died):
        Driver(world, calls_of(1) - 7).run(1)
    assert set(world.records[1]) == {"of-1", "of-2", MAIN}
    driver = Driver(world)
    driver.batch_id = 1
    with pytest.raises(WriteError, match=r"DEAD_LETTERS_DIFFER.*put rows into of-1 too") as refused:
        run_batch(batch(1), [Sink(MAIN, driver)], driver.write)
    assert "dead_letter_table='of-1'" in refused.value.action
    assert world.jobs == 2
