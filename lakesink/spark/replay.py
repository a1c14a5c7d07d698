"""The public function `replay_dead_letters`: repaired dead letters land in their table, each once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from lakesink.settings.option_types import Options
from lakesink.settings.options import option_invalid
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.letters_policy import letters_table
from lakesink.sinks.iceberg.pending import MOST_BYTES, OfTable, check_letter_table, count_letters, first_letters
from lakesink.sinks.iceberg.preflight import open_existing
from lakesink.sinks.iceberg.replays import Assignments, Replayed, assign, load_assignments, replays_differ
from lakesink.sinks.iceberg.side_table import MOST_LOOKS, unsettled
from lakesink.spark.api import append_version, check_classic
from lakesink.spark.repair import LETTER_ID, Repair, Repaired, check_all_returned, invalid_repair, repaired
from lakesink.words import counted
from lakesink.writer.expectations import OnUnmet
from lakesink.writer.letters import REPLAYS_TABLE
from lakesink.writer.plan import OnMalformed
from lakesink_catalog.commit.current import is_current
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import MAIN_BRANCH, SinkKind
from lakesink_protocol.outcome import Committed

_SHARED_WITH_REPLAYS = ("prepared_max_age", "ledger_tag", "ledger_tag_max_age", "max_clock_ahead")
"""Options that the table of replays has too."""


def replay_dead_letters(spark: SparkSession, table: str, repair: Repair, **options: Unpack[Options]) -> Replayed:
    """Append repaired dead letters to the table that they came from, each once, also if this is called several times.

    The repair gets the pending letters of this table, with all columns of the table of dead letters, and `row`: the
    payload in the columns of the table, NULL if it is no JSON object. It returns the columns of the table and
    `letter_id`, one row for each letter that it repairs. A letter that it does not return stays pending. It may be
    called several times, each time with at most 100,000 letters. A call that failed is continued by the next one.

    Args:
        spark: A classic Spark session.
        table: Table identifier, ``namespace.table``.
        repair: Function of a DataFrame that returns one, or a query in Spark SQL over the view ``letters``.
        **options: As for `append`, which writes the rows. `dead_letter_table` names the table of dead letters if it has
            another name than ``<table>__dead_letters``. Nothing can be put aside again.

    Returns:
        What this call has replayed, and the number of letters that are pending afterwards.

    Raises:
        SettingsError: An option is malformed, or would put rows aside.
        CatalogError: The catalog is unusable, or a table does not exist.
        WriteError: The repair returned other letters than it was given, or rows that the table cannot hold; or the
            tables contradict each other.
        BatchRefused: The table's ledger does not allow the replay.
        CommitUnresolved: It is unknown whether the rows were committed. Call again.
    """
    check_classic(spark, "lakesink.replay_dead_letters", SparkSession)
    settings = Settings.parse(options, kind=SinkKind.TXN)
    _check_puts_nothing_aside(settings)
    letters = letters_table(table, settings)
    found = CatalogConfig(settings.catalog, settings.catalog_properties).find()
    return _Replay(spark, table, letters, repair, settings, found, open_existing(found, table)).run()


class _LostRace(LakesinkError):
    """Another process has assigned letters to the replay; nothing of this one was committed."""

    def __init__(self, replay: int) -> None:
        what = f"Another process has begun replay {replay}; it is continued with the letters of that process."
        super().__init__("REPLAYS_DIFFER", what, data="This process committed nothing.", action="Wait: it goes on.")


@dataclass(frozen=True, slots=True)
class _Step:
    """One replay: its number, and its letters; `begun` if they are assigned to it."""

    replay: int
    letters: pa.Table
    begun: bool


@dataclass(slots=True)
class _Replay:
    """One call."""

    spark: SparkSession
    table: str
    letters: str
    repair: Repair
    settings: Settings
    found: FoundCatalog
    catalog: Catalog
    left: set[str] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)
    done: Replayed = field(default_factory=Replayed)

    def run(self) -> Replayed:
        """Replay until no letter is left that the repair returns."""
        of, assignments = self._look()
        while (step := self._next(of, assignments)) is not None:
            self._replay(of, assignments, step)
            of, assignments = self._look()
        return replace(self.done, pending=count_letters(of, lambda letter, *_: not assignments.is_replayed(letter)))

    def _replay(self, of: OfTable, assignments: Assignments, step: _Step) -> None:
        rows = repaired(self.spark, step.letters, of.table, self.repair)
        if step.begun:
            check_all_returned(rows, step.replay, step.letters.num_rows)
        self.left.update({*step.letters.column(LETTER_ID).to_pylist()}.difference(rows.letters))
        if rows.letters:
            self._append(of, assignments, step, rows)

    def _look(self) -> tuple[OfTable, Assignments]:
        """The tables, in an order in which no later one lacks what an earlier one shows.

        A letter that was rolled back, or dropped with its table, may be in another place since: none of those is taken.
        """
        for _ in range(MOST_LOOKS):
            first = load_table(self.catalog, self.letters)
            check_letter_table(first)
            table = load_table(self.catalog, self.table)
            if LETTER_ID in {name.lower() for name in table.schema().column_names}:
                raise invalid_repair(f"{self.table} has a column letter_id.", "Append the rows with lakesink.append.")
            branch = self.settings.branch
            assignments = load_assignments(self.catalog, table, first, self.letters, branch)
            letters = load_table(self.catalog, self.letters)
            if letters.metadata.table_uuid == first.metadata.table_uuid and is_current(letters, MAIN_BRANCH):
                return OfTable(table, letters, branch), assignments
        raise unsettled(self.letters, "its dead letters are")

    def _next(self, of: OfTable, assignments: Assignments) -> _Step | None:
        if assignments.unfinished is not None:
            return self._unfinished(of, assignments, assignments.unfinished)
        chosen = first_letters(
            of,
            lambda letter, sink, batch_id: (
                not assignments.is_assigned(letter) and letter not in self.left and of.is_complete(sink, batch_id)
            ),
        )
        return None if chosen is None else _Step(assignments.newest + 1, chosen, begun=False)

    def _unfinished(self, of: OfTable, assignments: Assignments, replay: int) -> _Step:
        """The replay that an earlier call has begun, or that was rolled back in the table: exactly its letters."""
        ids = assignments.letters_of(replay)
        letters = first_letters(of, lambda letter, *_: letter in ids, len(ids) + 1, len(ids) * MOST_BYTES)
        missing = len(ids) - (0 if letters is None else letters.num_rows)
        if letters is None or missing:
            raise replays_differ(f"{self.letters} lacks {counted(missing, 'letter')} of replay {replay}.")
        if replay in self.skipped:
            raise replays_differ(f"{self.table} skips replay {replay}, but does not show it.")
        return _Step(replay, letters, begun=True)

    def _append(self, of: OfTable, assignments: Assignments, step: _Step, rows: Repaired) -> None:
        of_replay: Mapping[str, str] = {**self.settings.snapshot_properties, REPLAYS_TABLE: assignments.name}
        settings = replace(self.settings, snapshot_properties=of_replay)

        def begin() -> None:
            if load_table(self.catalog, self.table).metadata.table_uuid != of.table.metadata.table_uuid:
                raise replays_differ(f"{self.table} was replaced by another table of this name.")
            if not assign(self.found.open, assignments, step.replay, rows.letters, self._settings_of_replays()):
                raise _LostRace(step.replay)

        hook = None if step.begun else begin
        try:
            outcome = append_version(rows.rows, self.table, assignments.key, step.replay, settings, hook)
        except _LostRace:
            return
        if isinstance(outcome, Committed):
            self.done = Replayed(self.done.replays + 1, self.done.letters + len(rows.letters))
        elif step.begun:
            self.skipped.add(step.replay)

    def _settings_of_replays(self) -> Settings:
        shared: dict[str, Any] = {name: getattr(self.settings, name) for name in _SHARED_WITH_REPLAYS}
        return Settings(create_table=True, **shared)


def _check_puts_nothing_aside(settings: Settings) -> None:
    """Rows that were put aside again would be new letters, which the same repair would get again."""
    if settings.on_malformed is OnMalformed.QUARANTINE:
        raise option_invalid("on_malformed", "A replay cannot put rows aside: on_malformed is 'quarantine'.")
    if any(one.on_unmet is OnUnmet.QUARANTINE for one in settings.expect.values()):
        raise option_invalid("expect", "A replay cannot put rows aside: an expectation has 'quarantine'.")
