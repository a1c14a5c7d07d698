"""An operator who follows every advice, for streams with a side table: dead letters, or a changelog.

Each row of the source gives one row to the table and one to its side table. At the end each offset must be in both as
often, unless a message that was followed said so, and `audit` must not call it clean while the history is retained.
"""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol.coordinator import Write
from lakesink_protocol.errors import BatchRefused, Reason, WriteError
from lakesink_protocol.identity import Batch
from lakesink_protocol.ledger import mark_of
from lakesink_tools.audit.audit import audit
from proof.simulator.advice import Advice, Checkpoint, Followed, Play
from proof.simulator.advice import follow as alone
from proof.simulator.operator import head_at
from testkit.answers import first
from testkit.builders import TABLE, Lake, Stream, offered
from testkit.letters import one_task

ARRIVING = pa.schema([("batch", pa.int64()), ("id", pa.int64())])
_ROLL = re.compile(r"Roll (\S+) back to snapshot (\d+)\.")
_ROLL_BEFORE = re.compile(r"Roll (\S+) back to its snapshot before batch (-?\d+)\.")
_DROP = re.compile(r"Drop (\S+): it has nothing else\.")
_NAME_THIS = re.compile(
    r"Start the query with (?:dead_letter_table|changelog_table)='([^']+)' until this batch is committed"
)
_NAME_ANOTHER = re.compile(r"(?:[Nn]ame|Start the query with) another (?:dead_letter_table|changelog_table)")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of side tables: the option that names one, the stream's options, and the offsets of its rows."""

    option: str
    code: str
    options: Mapping[str, Any]
    keys: Sequence[int]
    rows: Callable[[int], list[dict[str, int | None]]]
    offset: Callable[[dict[str, Any]], int]


LETTERS = Kind(
    "dead_letter_table",
    "LAKESINK_DEAD_LETTERS_DIFFER",
    {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0},
    (),
    lambda offset: [{"batch": offset, "id": 1}, {"batch": offset, "id": None}],
    lambda letter: int(json.loads(letter["payload"])["batch"]),
)
CHANGELOG = Kind(
    "changelog_table",
    "LAKESINK_CHANGELOG_DIFFERS",
    {"mode": "upsert", "keys": ["batch"]},
    (1,),
    lambda offset: [{"batch": offset, "id": 1}],
    lambda change: int(change["batch"]),
)


class Killed(BaseException):
    """SIGKILL: nothing of the driver goes on."""


@dataclass(slots=True)
class SideStream(Stream):
    """Each offset is one row of the table, and one of its side table."""

    of: Kind = LETTERS

    def sink(self, **options: Any) -> IcebergSink:
        """The sink of a driver that has just started."""
        sink = Stream.sink(self, **options)
        sink.schema = ARRIVING
        return sink


@dataclass(slots=True)
class SidePlay(Play):
    """One seed."""

    names: list[str] = field(default_factory=list)
    may_differ: bool = False
    has_new_sink: bool = False

    @property
    def kind(self) -> Kind:
        """Of the side table."""
        assert isinstance(self.stream, SideStream)
        return self.stream.of

    def happenings(self) -> list[Callable[[], None]]:
        often = [self._die_between, self._roll_back]
        return [*often, *often, *Play.happenings(self)]

    def _others(self) -> None:
        table = self.lake.table()
        table.append(pa.table({"batch": [-1], "id": [1]}, schema=table.schema().as_arrow()))

    def _die_between(self) -> None:
        """The driver dies when the side table has the batch and the table does not, perhaps with its checkpoint."""

        def kill() -> NoReturn:
            raise Killed

        batch = self.checkpoint.plan(self.random, self.end)
        if batch is None:
            return
        self.lake.catalog.faults = [first(lambda: None), first(kill)]
        with suppress(Killed, BatchRefused, WriteError):
            self._run(batch, {})
        self.lake.catalog.faults = []
        if self.random.random() < 0.5:
            self._tell("lose the checkpoint too")
            self._lose_the_checkpoint()

    def _job(self, batch: Batch) -> Write:
        rows = [row for offset in self.offsets(batch) for row in self.kind.rows(offset)]
        return one_task(pa.Table.from_pylist(rows, schema=ARRIVING))

    # Advices.

    def advices(self, refused: BatchRefused | WriteError) -> list[Advice]:
        if isinstance(refused, BatchRefused):
            if refused.what.startswith(self.names[-1]):
                return self._advices_of_side(refused)
            return [
                (kind, words, partial(self._told_before, refused, kind, do))
                for kind, words, do in Play.advices(self, refused)
            ]
        if refused.code != self.kind.code:
            raise refused
        return self._ways_out(refused.action) or [("give up", refused.action, self._give_up)]

    def _ways_out(self, text: str) -> list[Advice]:
        """What takes rows out of the side table, or leaves them there."""
        found: list[Advice] = [
            ("roll the side table back", told[0], partial(self._set_head, told[1], int(told[2])))
            for told in _ROLL.finditer(text)
        ]
        found += [("drop the side table", told[0], partial(self._drop, told[1])) for told in _DROP.finditer(text)]
        found += [
            ("roll the side table back before", told[0], partial(self._back_before, told[1], int(told[2])))
            for told in _ROLL_BEFORE.finditer(text)
        ]
        found += [("this side table", told[0], partial(self._name, told[1])) for told in _NAME_THIS.finditer(text)]
        if another := _NAME_ANOTHER.search(text):
            found.append(("another side table", another[0], self._another_side_table))
        return found

    def _told_before(
        self, refused: BatchRefused, kind: str, do: Callable[[], dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """The refusal of the table says what to do with the side table before batches are replayed."""
        if kind in ("rewind", "old checkpoint"):
            for _, words, first_do in self._ways_out(refused.choices[0] if refused.choices else refused.action):
                self._tell(f"before: {words}")
                first_do()
        if kind == "another sink id" and _NAME_ANOTHER.search(refused.action):
            self._another_side_table()
        return do()

    def _advices_of_side(self, refused: BatchRefused) -> list[Advice]:
        side = self._side(self.names[-1])
        found: list[Advice] = [("another side table", "name another table", self._another_side_table)]
        if refused.reason is Reason.ROLLED_BACK and side is not None:
            found = [
                ("accept for the side table", word, partial(dict, accept=word)) for word in offered(refused).values()
            ]
        elif refused.reason is Reason.TABLE_REPLACED:
            found = [("start again", "Start the query again", dict)]
        return found

    def _side(self, name: str) -> Table | None:
        try:
            return self.lake.catalog.load_table(name)
        except NoSuchTableError:
            return None

    def _set_head(self, name: str, snapshot_id: int) -> dict[str, Any]:
        side = self._side(name)
        assert side is not None
        self.lake.catalog.commit_table(side, (), (head_at("main", snapshot_id),))
        return {}

    def _drop(self, name: str) -> dict[str, Any]:
        self.lake.catalog.drop_table(name)
        return {}

    def _back_before(self, name: str, batch_id: int) -> dict[str, Any]:
        side = self._side(name)
        assert side is not None
        snapshot = side.current_snapshot()
        while snapshot is not None and (mark := mark_of(snapshot.summary)) is not None and mark.batch_id >= batch_id:
            parent = snapshot.parent_snapshot_id
            snapshot = side.snapshot_by_id(parent) if parent is not None else None
        return self._drop(name) if snapshot is None else self._set_head(name, snapshot.snapshot_id)

    def _another_side_table(self) -> dict[str, Any]:
        """Rows of batches that will be written again stay where they are."""
        self.may_differ = True
        return self._name(f"{self.names[0]}_{len(self.names)}")

    def _name(self, name: str) -> dict[str, Any]:
        self.names = [*(one for one in self.names if one != name), name]
        self.stream.options[self.kind.option] = name
        return {}

    def _another_sink(self, action: str) -> dict[str, Any] | None:
        self.has_new_sink = True
        return Play._another_sink(self, action)  # noqa: SLF001 - of this class

    # Judging.

    def judge(self) -> None:
        Play.judge(self)
        head = self.lake.table().snapshot_by_name(self.stream.branch)
        if self.stopped or self.may_differ or head is None:
            return
        rows = self.lake.table().scan(snapshot_id=head.snapshot_id).to_arrow()["batch"].to_pylist()
        own = Counter(value for value in rows if value >= 0)
        beside = Counter(self.kind.offset(row) for name in self.names for row in self._rows(name))
        there = own.keys() | beside.keys()
        if self.kind.keys and self.has_new_sink:  # rows that another sink wrote too are in the table once
            own = Counter({offset: max(own[offset], beside[offset]) for offset in own})
        wrong = sorted(offset for offset in there if offset >= self.of_others and own[offset] != beside[offset])
        if not wrong:
            return
        told = [finding.code.name for finding in audit(self.lake.table(), footers=False).findings]
        self._tell(f"table {dict(own)}, side table {dict(beside)}, audit {told}")
        lost = [offset for offset in wrong if own[offset] and not beside[offset]]
        if lost or not (self.may_double or self.may_lose):
            self.report.broken.append(f"offsets {wrong} are not as often in the side table, and no message said so")
        if not told and not self.expired:
            self.report.broken.append(f"audit calls it clean: offsets {wrong} are not as often in the side table")

    def _rows(self, name: str) -> list[dict[str, Any]]:
        side = self._side(name)
        return [] if side is None else side.scan().to_arrow().to_pylist()


def follow_in_turn(seed: int) -> Followed:
    """Play one seed: of three, two have a side table."""
    plays: Sequence[Callable[[int], Followed]] = (alone, partial(follow, kind=LETTERS), partial(follow, kind=CHANGELOG))
    return plays[seed % 3](seed)


def follow(seed: int, kind: Kind) -> Followed:
    """Play one seed."""
    fields = NestedField(1, "batch", LongType(), required=True), NestedField(2, "id", LongType(), required=True)
    with tempfile.TemporaryDirectory() as folder:
        schema = Schema(*fields, identifier_field_ids=list(kind.keys))
        lake = Lake.make(Path(folder), schema=schema, properties={"commit.retry.num-retries": "1"})
        name = f"{TABLE}__side"
        report = Followed(seed)
        stream = SideStream(lake, options={**kind.options, kind.option: name}, of=kind)
        play = SidePlay(Random(seed), lake, stream, Checkpoint("query-1"), report, names=[name])
        try:
            play.run()
        finally:
            lake.catalog.engine.dispose()
    return report
