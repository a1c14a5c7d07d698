"""Several streams and maintenances of one table, each within others: no row is lost or doubled, and losers say so."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream, counted, expected
from testkit.change_table import Change, ChangeStream, compactions, rows_of, upsert_lake
from testkit.examples import seeds

SOON: dict[str, Any] = {"maintenance": {"min_input_files": 2}}
BATCHES = 3
"""Of each stream at least."""
DEEPEST = 3
"""So many runs are under way at once, each at a place within the one before."""
PLACES = events.GroupRewritten, events.ChangesLocated, events.BatchPrepared
"""Where others may come: a group is rewritten, rows are located, or a batch is prepared, and its commit not sent."""


@dataclass(slots=True)
class Several:
    """Three streams, and other processes that maintain their table.

    Attributes:
        starts: Begins another run within one that is at one of `PLACES`.
        batches: Those that each stream has run.
        told: Of all runs.
    """

    lake: Lake
    chance: random.Random
    starts: list[Callable[[], None]] = field(default_factory=list)
    batches: list[list[int]] = field(default_factory=list)
    told: list[events.Event] = field(default_factory=list)
    depth: int = 0

    def hear(self, event: events.Event) -> None:
        self.told.append(event)
        if isinstance(event, PLACES) and self.depth < DEEPEST and self.chance.random() < 0.4:
            self.one_more()

    def one_more(self) -> None:
        """A stream that is not under way runs its next batch, or another process maintains the table."""
        start = self.chance.choice(self.starts)
        self.depth += 1
        start()
        self.depth -= 1

    def maintain(self) -> None:
        effects = Effects(emit=LISTENERS.also(self.hear))
        report = Maintenance(self.lake.table, policy=Policy(min_input_files=2), effects=effects).run()
        assert not [one.reason for one in report.left if not one.reason.startswith("lost")]

    def add(self, stream: Stream, run: Callable[[Stream, int], object]) -> list[int]:
        """A stream whose driver is at one batch at a time; returns the batches that it has run."""
        stream.listeners = LISTENERS.also(self.hear)
        done: list[int] = []
        at_work: list[bool] = []

        def start() -> None:
            if not at_work:
                at_work.append(True)
                assert isinstance(run(stream, len(done)), Committed)
                done.append(len(done))
                at_work.clear()

        self.starts += [start, self.maintain]
        self.batches.append(done)
        return done

    def go_on(self) -> bool:
        """True until each stream has run some batches, and some maintenance has lost a group to another."""
        return min(map(len, self.batches)) < BATCHES or not self.counts[events.GroupLost]

    @property
    def counts(self) -> Counter[type[events.Event]]:
        return Counter(map(type, self.told))

    def judge(self) -> None:
        assert not self.counts[events.GroupFailed] + self.counts[events.MaintenanceFailed]
        assert self.counts[events.GroupReplaced] == len(compactions(self.lake)) > 0


@pytest.mark.parametrize("seed", seeds(1))
def test_three_streams_append_to_one_table_and_each_maintains_it(lake: Lake, seed: int) -> None:
    several = Several(lake, random.Random(seed))
    names = ("one", "two", "three")
    streams = [several.add(Stream(lake, name, options=SOON), lambda of, at: of.run(at)) for name in names]
    while several.go_on():
        several.one_more()
        wanted = sum((expected(*done) for done in streams), Counter[tuple[int, int]]())
        assert (counted(lake) if lake.table().current_snapshot() else Counter()) == wanted
    several.judge()


@pytest.mark.parametrize("seed", seeds(1))
def test_three_streams_change_rows_of_one_table_and_each_maintains_it(tmp_path: Path, seed: int) -> None:
    """Each of them has keys of its own, so that the newest batch of each says what its rows are."""
    several = Several(upsert_lake(tmp_path, partitioned=seed % 2 == 1), random.Random(seed))

    def changes(sink: int, batch: int) -> list[Change]:
        keys = {10 * sink + (batch + at) % 5: (batch + at) % 3 == 0 for at in range(3)}
        return [Change(key, batch, "ab"[key % 2], f"v{batch}", Decimal(batch), gone) for key, gone in keys.items()]

    streams = [
        several.add(
            ChangeStream(several.lake, f"sink-{sink}", options=SOON),
            lambda of, at, sink=sink: of.run_changes(at, [changes(sink, at)]),  # type: ignore[misc] # ChangeStream
        )
        for sink in range(3)
    ]
    while several.go_on():
        several.one_more()
        rows = dict[int, Change]()
        for sink, done in enumerate(streams):
            rows |= {change.key: change for batch in done for change in changes(sink, batch)}
        wanted = [rows[key].row for key in sorted(rows) if not rows[key].deletes]
        assert rows_of(several.lake) == wanted
    several.judge()
