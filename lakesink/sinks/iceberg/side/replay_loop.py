"""The loop of `lakesink.replay_dead_letters`: pending letters are repaired and land in their table, each once.

How letters are repaired and how their rows are appended is given: both need a Spark session, and this loop does not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.keys.change_columns import UNKNOWN
from lakesink.rows.letters import VALUE
from lakesink.settings.option_types import Deletes, SchemaEvolution
from lakesink.settings.settings import POLICY, Settings, read_policy
from lakesink.sinks.iceberg.iceberg_sink import BeforeCommit
from lakesink.sinks.iceberg.keyed_changes import check_sequence
from lakesink.sinks.iceberg.side.begun_replays import replays_back
from lakesink.sinks.iceberg.side.pending import MOST_BYTES, OfTable, check_letter_table, count_letters, first_letters
from lakesink.sinks.iceberg.side.replays import (
    AllAssignments,
    Assignments,
    Replayed,
    assign,
    load_assignments,
    replay_batch,
    replays_differ,
)
from lakesink.sinks.iceberg.side.side_sink import MOST_LOOKS
from lakesink.sinks.iceberg.side.side_tables import of_side_table
from lakesink_catalog.commit.request import is_current
from lakesink_catalog.read.landed import Landed
from lakesink_catalog.tables.tables import find_table, load_table
from lakesink_catalog.words import counted
from lakesink_protocol.errors import CatalogError, CommitUnresolved, LakesinkError, WriteError
from lakesink_protocol.identity import MAIN_BRANCH, NO_BATCH, Batch, SinkKey
from lakesink_protocol.outcome import Committed, Outcome
from lakesink_protocol.quality import REPLAYS_TABLE
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import Mode

LETTER_ID, OPERATION = "letter_id", "operation"
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair, evaluated once: the letters that it returned, and their rows in the same order."""

    letters: list[str]
    rows: Any


RepairLetters = Callable[[pa.Table, Table], Repaired]
"""Repairs letters for their table."""
AppendRows = Callable[[Any, str, SinkKey, Batch, Settings, BeforeCommit], Outcome]
"""Appends repaired rows to a table as a version of an application; `IcebergSink` explains the last argument."""


class _LostRace(LakesinkError):
    """Others have assigned letters to the replay, or rolled back the batch of one; nothing of it was committed."""

    def __init__(self, replay: int) -> None:
        what = f"The tables have changed since replay {replay} was begun; it is looked at again."
        super().__init__("REPLAYS_DIFFER", what, data="This process committed nothing.", action="Wait: it goes on.")


@dataclass(frozen=True, slots=True)
class _Step:
    """One replay: of which application, its number, and its letters; `begun` if they are assigned to it."""

    of: Assignments
    replay: int
    letters: pa.Table
    begun: bool


@dataclass(slots=True)
class ReplayLoop:
    """One call for a table and its table of dead letters."""

    table: str
    letters: str
    settings: Settings
    open_catalog: Callable[[], Catalog]
    catalog: Catalog
    repair: RepairLetters
    append: AppendRows
    left: set[str] = field(default_factory=set)
    skipped: set[tuple[str, int]] = field(default_factory=set, init=False)
    done: Replayed = field(default_factory=Replayed, init=False)

    def run(self) -> Replayed:
        """Replay until no letter is left that the repair returns."""
        of, assignments = self._look()
        while (step := self._next(of, assignments)) is not None:
            self._replay(of, assignments, step)
            of, assignments = self._look()
        return replace(self.done, pending=count_letters(of, lambda letter, *_: not assignments.is_replayed(letter)))

    def _replay(self, of: OfTable, assignments: AllAssignments, step: _Step) -> None:
        _check_mode(step.letters, self.settings.mode)
        first = step.letters.slice(0, 1).to_pylist()[0]
        _check_order(of.landed(first[LETTER_ID], first["sink"]), of.table, self.settings)
        rows = self.repair(step.letters, of.table)
        _check_returned(rows.letters, step.letters)
        returned, number = len(rows.letters), step.letters.num_rows
        if step.begun and returned < number:  # a replay that was begun gets the rows of all its letters
            letters = counted(number, "letter")
            raise WriteError.of("REPAIR_INVALID.begun", replay=step.replay, letters=letters, returned=returned)
        self.left.update({*step.letters.column(LETTER_ID).to_pylist()}.difference(rows.letters))
        if rows.letters:
            self._append(of, assignments, step, rows)

    def _look(self) -> tuple[OfTable, AllAssignments]:
        """The tables, in an order in which no later one lacks what an earlier one shows, and no letter has moved."""
        for _ in range(MOST_LOOKS):
            first = self._letters()
            check_letter_table(first)
            table = load_table(self.catalog, self.table)
            if LETTER_ID in {name.lower() for name in table.schema().column_names}:
                raise invalid_repair(f"{self.table} has a column letter_id.", "Append the rows with lakesink.append.")
            branch = self.settings.branch
            assignments = load_assignments(self.catalog, table, first, self.letters, branch)
            letters = load_table(self.catalog, self.letters)
            if letters.metadata.table_uuid == first.metadata.table_uuid and is_current(letters, MAIN_BRANCH):
                return OfTable(table, letters, branch), assignments
        raise CommitUnresolved.of("COMMIT_UNRESOLVED.older_state", table=self.letters, unknown="its dead letters are")

    def _letters(self) -> Table:
        found = find_table(self.catalog, self.letters)
        if found is not None:
            return found
        load_table(self.catalog, self.table)  # its name may be the wrong one
        raise CatalogError.of(
            "TABLE_MISSING.letters",
            data="Nothing was replayed.",
            name=self.letters,
            table=self.table,
            how="give it here too",
        )

    def _next(self, of: OfTable, assignments: AllAssignments) -> _Step | None:
        waiting = set()
        for begun, replay in assignments.unfinished:
            step = self._unfinished(of, assignments.name, begun, replay)
            if of.are_complete(step.letters):
                return step
            waiting.add(begun.key)
        chosen = first_letters(
            of,
            lambda letter, sink, batch_id: (
                not assignments.is_assigned(letter)
                and letter not in self.left
                and of.is_complete(letter, sink, batch_id)
                and not (waiting and assignments.of(of.landed(letter, sink).key).key in waiting)
            ),
        )
        if chosen is None:
            return None
        sinks = map(of.landed, chosen[LETTER_ID].to_pylist(), chosen["sink"].to_pylist())
        owners = [sink.key for sink in sinks]
        of_one_sink = chosen.filter(pa.array([owner == owners[0] for owner in owners]))
        of_sink = assignments.of(owners[0])
        return _Step(of_sink, of_sink.newest + 1, of_one_sink, begun=False)

    def _unfinished(self, of: OfTable, name: str, assignments: Assignments, replay: int) -> _Step:
        """The replay that an earlier call has begun, or that was rolled back in the table: exactly its letters."""
        ids = assignments.letters_of(replay)
        letters = first_letters(of, lambda letter, *_: letter in ids, len(ids) + 1, len(ids) * MOST_BYTES)
        missing = len(ids) - (0 if letters is None else letters.num_rows)
        if letters is None or missing:
            back = replays_back(self.catalog, of.table, of.letters, of.branch)
            ways = [f"{way} Then run the replay again." for way in back or ()]
            raise replays_differ(f"{self.letters} lacks {counted(missing, 'letter')} of replay {replay}.", name, *ways)
        if (assignments.key.name, replay) in self.skipped:
            raise replays_differ(f"{self.table} skips replay {replay}, but does not show it.", name)
        return _Step(assignments, replay, letters, begun=True)

    def _append(self, of: OfTable, assignments: AllAssignments, step: _Step, rows: Repaired) -> None:
        of_replay: Mapping[str, str] = {**self.settings.snapshot_properties, REPLAYS_TABLE: assignments.name}
        settings, key = replace(self.settings, snapshot_properties=of_replay), step.of.key
        given = step.letters.filter(pc.is_in(step.letters[LETTER_ID], pa.array(rows.letters)))
        batch = replay_batch(step.of, step.replay, given)

        def check(table: Table) -> None:
            if table.metadata.table_uuid != of.table.metadata.table_uuid:
                raise replays_differ(f"{self.table} was replaced by another table of this name.", assignments.name)
            if not OfTable(table, of.letters, of.branch).are_complete(given):  # the batch may come again
                raise _LostRace(step.replay)

        def begin() -> Callable[[Table], None]:
            check(load_table(self.catalog, self.table))
            of_replays = replace(of_side_table(self.settings), create_table=True)
            if not step.begun and not assign(
                self.open_catalog, assignments.name, key.name, step.replay, rows.letters, of_replays
            ):
                raise _LostRace(step.replay)
            return check

        try:
            outcome = self.append(rows.rows, self.table, key, batch, settings, begin)
        except _LostRace:
            return
        if isinstance(outcome, Committed):
            self.done = Replayed(self.done.replays + 1, self.done.letters + len(rows.letters))
        elif step.begun:
            self.skipped.add((key.name, step.replay))


def _check_mode(letters: pa.Table, mode: Mode) -> None:
    """Refuse to append what was a change of a row, or to write the row of a delete."""
    found = pc.value_counts(letters.column(OPERATION))
    counts = {str(one["values"]): one["counts"] for one in found.to_pylist() if one["values"] is not None}
    if counts and mode is Mode.APPEND:
        raise invalid_repair(
            f"The replay would append rows, and {counted(sum(counts.values()), 'dead letter')} changed rows by key.",
            "Give the options mode, keys and sequence_by as the stream has them.",
        )
    deletes = counts.get("delete", 0) + counts.get(UNKNOWN, 0)  # only mode='changes' puts unknown ones aside
    if mode is Mode.UPSERT and deletes:
        raise invalid_repair(
            f"{counted(deletes, 'dead letter')} may delete a row, and mode='upsert' would write it.",
            "Give mode='changes', as the stream has it. For rows with the table's columns, return operation too, with"
            " apply_as_deletes=\"operation = 'delete'\" and except_column_list=['operation'].",
        )


def _check_order(sink: Landed, table: Table, settings: Settings) -> None:
    """Refuse to order changes otherwise than the sink's newest batch, if that tells: an older change could win."""
    texts, lists = read_policy(str(sink.newest_summary().get(POLICY) or ""))
    if Mode.APPEND in (settings.mode, texts.get("mode", Mode.APPEND)):
        return
    given = {"sequence_by": ", ".join(settings.sequence_by), "deletes": settings.deletes}
    known, order = {"deletes": texts.get("deletes", Deletes.HARD)}, lists.get("sequence_by", ())
    if order and {name.lower() for name in table.schema().column_names}.issuperset(map(str.lower, order)):
        known["sequence_by"] = ", ".join(order)
    else:
        check_sequence(settings, NO_BATCH)
    for option, value in known.items():
        if given[option].lower() != value.lower():
            has, had = f"{option}='{given[option]}'", f"{option}='{shown(value, _LONGEST)}'"
            raise invalid_repair(
                f"The replay has {has}, and {sink.key.label} had {had}: an older change could replace a newer one.",
                (f"Give {had}, as the sink has it.", f"If the sink has {has} now, let it write a batch first."),
            )


def check_no_documents(columns: Sequence[str], table: Table, settings: Settings) -> None:
    """Refuse a column of documents where none are decoded: the table would be told to add it."""
    known = {name.lower() for name in table.schema().column_names}
    if settings.decode or settings.schema_evolution is not SchemaEvolution.FAIL or VALUE in known:
        return
    if VALUE in {name.lower() for name in columns}:
        raise invalid_repair(
            f"The repair returns a column {VALUE}, which the table does not have.",
            (
                "If it has documents, decode them as the stream does: decode='json', or --decode json of the command.",
                "Return columns of the table only.",
            ),
        )


def invalid_repair(what: str, action: str | Sequence[str]) -> WriteError:
    """The error for a repair that cannot be run, or whose result cannot be used."""
    return WriteError.of("REPAIR_INVALID.told", what=what, ways=[action] if isinstance(action, str) else action)


def _check_returned(ids: Sequence[str], letters: pa.Table) -> None:
    given = set(letters.column(LETTER_ID).to_pylist())
    unknown, twice = sum(letter not in given for letter in ids), len(ids) - len(set(ids))
    if unknown:
        raise invalid_repair(
            f"The repair returns {counted(unknown, 'row')} with a letter_id that it was not given.",
            "Return the letter_id of the letter that a row was made of, unchanged.",
        )
    if twice:
        raise invalid_repair(
            f"The repair returns {counted(twice, 'row')} more than letters: a letter_id comes twice.",
            "Return one row for each letter: a join or explode can double rows.",
        )
