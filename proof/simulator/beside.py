"""The tables beside that of a stream of changes: its dead letters, its changelog, and the replays of its letters.

Each row of theirs is compared with what the change was. A reader here shares no code with the product.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lakesink.rows.letters import REPLAYS_SUFFIX, SUFFIX
from proof.content import CHANGELOG, REST, Content
from proof.oracle import Broken, Key, told_once
from proof.simulator.catalog import EVENTS, SimulatedServer
from proof.simulator.contents import Contents, head_of
from proof.simulator.keyed_files import whole_rows
from proof.simulator.spark import Asked
from proof.simulator.store import SimulatedStore

LETTERS = (EVENTS[0], EVENTS[1] + SUFFIX)
REPLAYS = (EVENTS[0], LETTERS[1] + REPLAYS_SUFFIX)
Row = dict[str, Any]


@dataclass(eq=False)
class Beside:
    """Reads these tables."""

    store: SimulatedStore
    broken: list[Broken]
    _rows: dict[str, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.letters = SimulatedServer(self.store, LETTERS)
        self.log = SimulatedServer(self.store, tuple(CHANGELOG.split(".")))
        self.replays = SimulatedServer(self.store, REPLAYS)
        self._contents = Contents(self.store, self.broken)

    def reachable(self) -> set[str]:
        """Everything that retained snapshots of changelog and replays refer to."""
        found = (self._contents.reachable(one.current.metadata) for one in (self.log, self.replays) if one.current)
        return set().union(*found)

    def judge(self, asked: Asked, content: Content, sink: str, application: str) -> list[Broken]:
        """A batch that lands has told of each change in one of its tables, once and as it was.

        The `application` that writes its letters tells them from those of another query's batch of this id.
        """
        batch, aside = asked.batch.batch_id, sorted(filter(content.is_unfit, asked.rows))
        told = [
            (_key(row), (row["reason"], row["operation"], row["row_key"], row["row_sequence"]))
            for row in self.rows(self.letters)
            if row["batch_id"] == batch and row["letter_id"].startswith(application.rpartition(".")[2])
        ]
        broken = told_once(f"letters of batch {batch}", told, [(key, content.letter(key)) for key in aside])
        if content.logs:
            logged = [_whole(row) for row in self.rows(self.log) if row["_batch_id"] == batch]
            broken += told_once(f"changelog of batch {batch}", logged, self._logged(asked, content, sink))
        return broken

    def replayed(self, application: str, replay: int) -> list[Key]:
        """The places of the changes whose letters a replay has, in their order."""
        of = application, replay
        assigned = {row["letter_id"] for row in self.rows(self.replays) if (row["application"], row["replay"]) == of}
        return sorted(_key(row) for row in self.rows(self.letters) if row["letter_id"] in assigned)

    def rows(self, server: SimulatedServer) -> list[Row]:
        """The rows of one of the tables as it is."""
        if server.current is None:
            return []
        metadata = server.current.metadata
        files = self._contents.files(metadata, head_of(metadata, "main"))
        return [row for path in files for row in self._read(path)]

    def _read(self, path: str) -> list[Row]:
        if path not in self._rows:
            self._rows[path] = whole_rows(self.store.files[path].read())
        return self._rows[path]

    def _logged(self, asked: Asked, content: Content, sink: str) -> list[Row]:
        changes = content.changes_of(asked.rows)
        return [content.logged(change, sink, asked.batch.batch_id) for change in changes]


def judge_values(rows: Sequence[Row], wanted: Sequence[Row]) -> list[Broken]:
    """New files have these rows, whole."""
    return told_once("rows of new files", [_whole(row) for row in rows], wanted)


def _key(row: Row) -> Key:
    return row["partition"], row["offset"]


def _whole(row: Row) -> Row:
    """A row without its nulls, and with what was rescued where it came from."""
    rest = json.loads(row.get(REST) or "{}")
    unfit = {name: one["value"] for name, one in rest.get("unfit", {}).items()}
    found = {name: value for name, value in row.items() if value is not None and name != REST}
    return {**found, **rest.get("unknown", {}), **unfit}
