"""Tables with a key in the simulator: other writers' changes, and the dictionary that is the truth."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

import pytest
from pyiceberg.table.snapshots import Operation, Summary

from lakesink_protocol.row_changes import ChangeCounts, Mode
from lakesink_protocol.row_changes import Operation as Op
from proof.changes import Changing, Fold, RowChange, newest_of
from proof.content import Content
from proof.keyed_table import BY_ZONE, SCHEMA
from proof.simulator import keyed_engine
from proof.simulator.catalog import LOCATION, TABLE_PROPERTIES, SimulatedServer
from proof.simulator.dead_letters import DeadLetters
from proof.simulator.keyed_engine import KeyedEngine
from proof.simulator.keyed_truth import KeyedTruth
from proof.simulator.store import SimulatedStore
from proof.simulator.world import World

CHANGING = Changing(Mode.CHANGES)


def engine_of(seed: int, writers: int = 1) -> tuple[World, list[KeyedEngine]]:
    world = World(seed)
    store = SimulatedStore(world)
    truth = KeyedTruth(store, DeadLetters(store), content=Content(changing=CHANGING))
    server = SimulatedServer(store, applied=truth.note)
    server.create(SCHEMA, TABLE_PROPERTIES, LOCATION, BY_ZONE)
    engines = [KeyedEngine(server, truth, deeds=truth.deeds) for _ in range(writers)]
    for number, engine in enumerate(engines):
        engine.appended = number * 100
    return world, engines


def deeds_of(engine: KeyedEngine) -> list[Callable[[], None]]:
    return [engine.append, engine.append, engine.merge, engine.delete, engine.compact, engine.change_partitioning]


def one_after_another(deeds: Iterable[Callable[[], None]]) -> None:
    for deed in deeds:
        deed()


@pytest.mark.parametrize("seed", range(12))
def test_writers_in_any_order_leave_the_rows_that_the_dictionary_has(seed: int) -> None:
    world, engines = engine_of(seed, writers=3)
    for number, engine in enumerate(engines):
        chosen = Random(seed + number).choices(deeds_of(engine), k=12)
        world.start(f"writer {number}", partial(one_after_another, chosen))
    assert world.run()
    truth = engines[0].truth
    assert truth.broken == []
    assert truth.rows(truth.newest.version.metadata, "main") == truth.expected_of(truth.newest.path)


def test_all_that_writers_can_do_happens() -> None:
    done: Counter[str] = Counter()
    for seed in range(8):
        world, engines = engine_of(seed, writers=3)
        for number, engine in enumerate(engines):
            chosen = Random(seed + number).choices(deeds_of(engine), k=12)
            world.start(f"writer {number}", partial(one_after_another, chosen))
        world.run()
        done += sum((engine.done for engine in engines), Counter())
    kinds = {f"foreign {kind}" for kind in ("append", "overwrite", "delete", "replace")}
    assert kinds | {"replace in vain", "change of the partitioning"} <= done.keys()


def test_a_compaction_commits_over_snapshots_that_removed_none_of_its_rows() -> None:
    """As Iceberg's Java library does; else a stream that appended beside it would never meet one."""
    world, (engine,) = engine_of(1)
    _load(engine)
    base = engine._base("main")  # noqa: SLF001 - what the compaction has loaded
    engine.append()
    files = {file.path for file in base.files}
    assert engine._conflict(base, engine._base("main"), files) == ""  # noqa: SLF001 - what it decides
    engine.merge()
    assert "deleted meanwhile" in engine._conflict(base, engine._base("main"), files)  # noqa: SLF001
    assert world.story


def test_deletes_in_a_snapshot_that_says_append_are_not_seen_by_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (engine,) = engine_of(1)
    _load(engine)
    base = engine._base("main")  # noqa: SLF001 - what the compaction has loaded
    monkeypatch.setattr(keyed_engine, "Summary", lambda _: Summary(Operation.APPEND))
    engine.merge()
    assert engine._conflict(base, engine._base("main"), {file.path for file in base.files}) == ""  # noqa: SLF001


def _load(engine: KeyedEngine) -> None:
    for _ in range(4):
        engine.append()


def change(key: int, sequence: int, operation: Op = Op.UPSERT, at: int = 0) -> RowChange:
    return RowChange((0, at), key, sequence, 0, operation)


def test_the_newest_change_of_a_key_counts_and_at_one_sequence_the_event_of_the_stream() -> None:
    older, newer = change(1, 5, at=9), change(1, 6, at=1)
    assert newest_of([older, newer], has_sequence=True) == {1: newer}
    assert newest_of([newer, older], has_sequence=False) == {1: older}
    event, snapshot = change(1, 5, at=1), change(1, 5, Op.SNAPSHOT, at=2)
    assert newest_of([event, snapshot], has_sequence=True) == {1: event}


@pytest.mark.parametrize(
    ("live", "one", "counts"),
    [
        ([], change(1, 5), {"upserts": 1, "inserted": 1}),
        ([], change(1, 5, Op.DELETE), {"deletes": 1, "absent": 1}),
        ([4], change(1, 5), {"upserts": 1, "updated": 1}),
        ([5], change(1, 5), {"upserts": 1, "updated": 1}),
        ([5], change(1, 5, Op.SNAPSHOT), {"upserts": 1, "late_upserts": 1}),
        ([6], change(1, 5), {"upserts": 1, "late_upserts": 1}),
        ([6], change(1, 5, Op.DELETE), {"deletes": 1, "late_deletes": 1}),
        ([4], change(1, 5, Op.DELETE), {"deletes": 1, "deleted": 1}),
        ([3, 4], change(1, 5), {"upserts": 1, "updated": 1, "healed": 1}),
        ([3, 4, 6], change(1, 5), {"upserts": 1, "late_upserts": 1, "healed": 2}),
        ([3, 6], change(1, 5, Op.DELETE), {"deletes": 1, "late_deletes": 1, "healed": 1}),
    ],
)
def test_the_dictionary_counts_what_becomes_of_a_change(
    live: list[int], one: RowChange, counts: dict[str, int]
) -> None:
    fold = Fold()
    for at, sequence in enumerate(live, 10):
        fold.insert(change(1, sequence, at=at))
    found = fold.apply([one])
    assert found == ChangeCounts(**counts)
    assert found.balanced
    assert len(fold.rows) <= 1


@pytest.mark.parametrize("changing", [Changing(Mode.UPSERT), CHANGING, Changing(Mode.CHANGES, has_sequence=False)])
def test_no_two_changes_of_a_batch_tie_and_every_kind_of_change_occurs(changing: Changing) -> None:
    rows = [(partition, offset) for partition in range(2) for offset in range(100)]
    changes = [change for row in rows for change in changing.of(row)]
    ranked = Counter((one.key, one.sequence, one.operation is Op.SNAPSHOT, one.row[1], one.row[0]) for one in changes)
    assert max(ranked.values()) == 1
    kinds = {one.operation for one in changes}
    assert kinds == ({Op.UPSERT} if changing.mode is Mode.UPSERT else {Op.UPSERT, Op.DELETE} | kinds & {Op.SNAPSHOT})
    if not changing.has_sequence:
        assert all(one.key % 2 == one.row[0] for one in changes)
