"""A table of a stream that puts rows aside, and replays of these dead letters. No Spark."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.side.replay_loop import Repaired, ReplayLoop
from lakesink_protocol.errors import WriteError
from lakesink_protocol.outcome import Outcome
from testkit.builders import ROWS, TABLE, Lake, Stream
from testkit.letters import append_to, one_task
from testkit.maintenance import roll_back

LETTERS, REPLAYS = f"{TABLE}__dead_letters", f"{TABLE}__dead_letters__replays"
SCHEMA = Schema(*(NestedField(number, name, LongType(), required=True) for number, name in enumerate(ROWS.names, 1)))


@dataclass
class Bronze:
    """A table of a stream. Each batch has two good rows, at positions 0 and 1; those behind become dead letters."""

    lake: Lake
    sink_id: str = "events"
    adds: int = 0

    @classmethod
    def make(cls, folder: Path) -> "Bronze":
        return cls(Lake.make(folder, schema=SCHEMA))

    @property
    def stream(self) -> Stream:
        return Stream(self.lake, self.sink_id, options={"on_malformed": "quarantine", "max_dead_letter_ratio": 1})

    def run(self, number: int, letters: int = 1) -> Outcome:
        told = number + self.adds
        rows = [{"batch": told, "position": at, "written": 0 if at < 2 else None} for at in range(2 + letters)]
        job = one_task(pa.Table.from_pylist(rows, schema=ROWS))
        return self.stream.run_with(self.stream.sink(), number, job=job)

    def replay(self, *, wanted: Callable[[tuple[int, int]], bool] = lambda _: True, **options: Any) -> int:
        """Replay the wanted letters; their number."""

        def repair(letters: pa.Table, _: Table) -> Repaired:
            rows = pa.Table.from_pylist(
                [{**json.loads(text), "written": 9} for text in letters["payload"].to_pylist()], ROWS
            )
            ids = zip(rows["batch"].to_pylist(), rows["position"].to_pylist(), strict=True)
            kept = pa.array([wanted(one) for one in ids])
            return Repaired(letters["letter_id"].filter(kept).to_pylist(), rows.filter(kept))

        settings = Settings.parse(options, entry=Entry.REPLAY)
        catalog = self.lake.catalog
        append = partial(append_to, lambda: catalog)
        loop = ReplayLoop(TABLE, LETTERS, settings, lambda: catalog, catalog, repair, append)
        return loop.run().letters

    def replay_some(self, part: float) -> None:
        """Replay a part of the letters, always the same ones; all of them, if a replay that was begun needs all."""
        try:
            self.replay(wanted=lambda one: Random(str(one)).random() < part)
        except WriteError as error:
            if error.code != "LAKESINK_REPAIR_INVALID":
                raise
            self.replay()

    def head(self) -> int:
        return self.lake.head().snapshot_id

    def heads(self) -> dict[str, int]:
        """Of the table, its dead letters, and their replays, as far as they exist."""
        names = [name for name in (TABLE, LETTERS, REPLAYS) if self.lake.catalog.table_exists(name)]
        found = {name: self.lake.catalog.load_table(name).current_snapshot() for name in names}
        return {name: head.snapshot_id for name, head in found.items() if head is not None}

    def go_back(self, heads: Mapping[str, int]) -> None:
        """Roll all three tables back."""
        for name in (TABLE, LETTERS, REPLAYS):
            if name in heads:
                side = replace(self.lake, name=name)
                roll_back(side, heads[name])
            elif self.lake.catalog.table_exists(name):
                self.lake.catalog.drop_table(name)
