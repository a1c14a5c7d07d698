"""Which dead letters were replayed: a small table that assigns each letter to one replay, before the replay commits.

Replay N of a table of dead letters into a table is two commits in order: the letters of N are assigned, and then the
table gets their repaired rows as version N of an application. The ledgers of both tables allow N once. A letter is
replayed if it is assigned to a replay that the table has. An assigned replay that the table lacks is unfinished: it is
completed, with exactly its letters, before others are assigned.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.rows.letters import REPLAYS_SUFFIX, payload_digest, replays_of
from lakesink.rows.side_rows import digest_sum
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.side.begun_replays import replay_key
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_catalog.read.landed import newest_batch
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import find_table
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import Batch, SinkKey, SinkKind, digest, transaction_batch
from lakesink_protocol.outcome import Committed
from lakesink_protocol.redact import shown
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes

REPLAYS = pa.schema(
    [
        ("letter_id", pa.string()),
        ("application", pa.string()),
        ("replay", pa.int64()),
        ("replayed_at", pa.timestamp("us", "UTC")),
    ]
)
"""Columns of the table of replays: one row for each assigned letter."""
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of `lakesink.replay_dead_letters`.

    Attributes:
        replays: Number of replays that this call committed.
        letters: Number of letters in them.
        pending: Number of the table's letters that no replay has.
    """

    replays: int = 0
    letters: int = 0
    pending: int = 0


@dataclass(frozen=True)
class Assignments:
    """The replays of the dead letters of one sink, from one table into one branch of another.

    Attributes:
        key: The application that replays, see `replay_key`.
        last: The newest replay that the table has; 0 for none.
        end: Of that replay, see `replay_batch`.
        replay_of: The replay of every assigned letter.
    """

    key: SinkKey
    last: int
    end: str
    replay_of: Mapping[str, int]

    @cached_property
    def newest(self) -> int:
        """The newest replay to which letters are assigned; 0 for none."""
        return max(self.replay_of.values(), default=0)

    @cached_property
    def unfinished(self) -> int | None:
        """The oldest replay that the table lacks; None if it has all."""
        return min((replay for replay in self.replay_of.values() if replay > self.last), default=None)

    def letters_of(self, replay: int) -> frozenset[str]:
        """The letters of one replay."""
        return frozenset(letter for letter, assigned in self.replay_of.items() if assigned == replay)

    def is_replayed(self, letter: str) -> bool:
        """True if the table has the letter's replay."""
        return self.replay_of.get(letter, self.last + 1) <= self.last


@dataclass(frozen=True)
class AllAssignments:
    """The replays of one table of dead letters into one branch of another.

    Attributes:
        name: The table of replays.
        begins: How the names of their applications begin.
        applications: By their names.
        of_others: Letters that other applications replayed: those of other tables, and of tables that were recreated.
    """

    name: str
    begins: SinkKey
    applications: Mapping[str, Assignments]
    of_others: frozenset[str] = frozenset()

    def of(self, sink: SinkKey) -> Assignments:
        """Those of the letters of one sink."""
        key = replace(self.begins, name=self.begins.name + replays_of(sink))
        return self.applications.get(key.name, Assignments(key, 0, "", {}))

    @property
    def unfinished(self) -> Sequence[tuple[Assignments, int]]:
        """The oldest unfinished replay of each application that has one."""
        every = ((one, one.unfinished) for _, one in sorted(self.applications.items()))
        return [(one, replay) for one, replay in every if replay is not None]

    def is_assigned(self, letter: str) -> bool:
        """True if a replay has the letter, or will get it."""
        return letter in self.of_others or any(letter in one.replay_of for one in self.applications.values())

    def is_replayed(self, letter: str) -> bool:
        """True if the table has the letter's replay."""
        return letter in self.of_others or any(one.is_replayed(letter) for one in self.applications.values())


def load_assignments(catalog: Catalog, table: Table, letters: Table, letters_name: str, branch: str) -> AllAssignments:
    """Read which letters are assigned; `table` was loaded before, so that no replay in it is newer than those read.

    Raises:
        WriteError: The table has replays that the table of replays does not know, or the latter is malformed.
        CatalogError: The catalog failed.
    """
    begins, name = replay_key(table, letters, branch), f"{letters_name}{REPLAYS_SUFFIX}"
    replay_of, of_others = _read(catalog, name, begins.name)
    in_ledger = {key.name for key in keys_of_ledger(table) if replace(key, name="") == replace(begins, name="")}
    names = replay_of.keys() | {one for one in in_ledger if one.startswith(begins.name)}
    keys = [replace(begins, name=one) for one in names]
    found = {key.name: _assignments(table, key, name, replay_of.get(key.name, {})) for key in keys}
    return AllAssignments(name, begins, found, of_others)


def _assignments(table: Table, key: SinkKey, name: str, replay_of: Mapping[str, int]) -> Assignments:
    newest = newest_batch(table, key)
    last, end = (newest.batch_id, newest.end) if newest else (0, "")
    found = Assignments(key, last, end, replay_of)
    if found.last > found.newest:
        known = f"{shown(name, _LONGEST_NAME)} knows {found.newest or 'none'}"
        raise replays_differ(f"{_shown(table)} has replay {found.last}, but {known}.", name)
    if found.newest > 1 and view_table(table, key).entry is None:
        what = f"{shown(name, _LONGEST_NAME)} has replay {found.newest}, but {_shown(table)} has none."
        raise replays_differ(what, name)
    return found


def replay_batch(found: Assignments, replay: int, letters: pa.Table) -> Batch:
    """A replay as a version. Its end is a digest of its letters after those of the replays before it.

    After a rollback of all tables, a replay of the same number may have other letters: a reader sees that by the end.
    """
    payloads = zip(letters["payload"].to_pylist(), letters["payload_bytes"].to_pylist(), strict=True)
    told = digest_sum(*(payload_digest(text, other) for text, other in payloads))
    return transaction_batch(replay, digest({"before": found.end, "letters": told}))


def assign(
    open_catalog: Callable[[], Catalog],
    name: str,
    application: str,
    replay: int,
    letters: Sequence[str],
    settings: Settings,
) -> bool:
    """Assign letters to a replay, in the table of this name; False if another process has assigned letters to it."""
    sink = IcebergSink(name, SinkKey(application, kind=SinkKind.TXN), open_catalog, settings, REPLAYS)

    def write(writers: Mapping[str, TaskWriter]) -> Votes:
        count = len(letters)
        columns = [letters, [application] * count, [replay] * count, [datetime.now(UTC)] * count]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, REPLAYS, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=REPLAYS)
        return Votes.in_order({name: [writer.write(0, iter([rows]))] for name, writer in writers.items()})

    return isinstance(run_batch(transaction_batch(replay), [sink], write)[sink.name], Committed)


def replays_differ(what: str, name: str, *first: str) -> WriteError:
    """The error for replays that the tables know differently: a letter could land twice, or never.

    `name` is that of the table of replays; `first` are ways to go on that are offered before the usual ones.
    """
    replays, letters = shown(name, _LONGEST_NAME), shown(name.removesuffix(REPLAYS_SUFFIX), _LONGEST_NAME)
    return WriteError.of("REPLAYS_DIFFER.told", what=what, first=first, letters=letters, replays=replays)


def _read(catalog: Catalog, name: str, begins: str) -> tuple[dict[str, dict[str, int]], frozenset[str]]:
    """The replays of letters by application, and the letters of others."""
    table = find_table(catalog, name)
    if table is None:
        return {}, frozenset()
    missing = [column for column in REPLAYS.names if column not in table.schema().column_names]
    if missing:
        what = f"{shown(name, _LONGEST_NAME)} is no table of replays: it has no column {missing[0]}."
        raise replays_differ(what, name)
    own: dict[str, dict[str, int]] = {}
    others, seen = set(), set()
    for batch in table.scan(selected_fields=("letter_id", "application", "replay")).to_arrow_batch_reader():
        columns = (batch.column(column).to_pylist() for column in ("letter_id", "application", "replay"))
        for letter, application, replay in zip(*columns, strict=True):
            if application is None or not application.startswith(begins):
                others.add(letter)
            elif letter is None or replay is None or replay < 1 or letter in seen:
                what = f"{shown(name, _LONGEST_NAME)} has a row that no replay has written."
                raise replays_differ(what, name)
            else:
                seen.add(letter)
                own.setdefault(application, {})[letter] = replay
    return own, frozenset(others - {None})


def _shown(table: Table) -> str:
    return shown(".".join(table.name()), _LONGEST_NAME)
