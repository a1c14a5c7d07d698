"""The side tables of one sink: which of them the rows of a query need, and what the tasks must say of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakesink.rows.expectations import Expected
from lakesink.rows.letters import LETTERS
from lakesink.rows.plan import WritePlan
from lakesink.rows.side_rows import SidePlan, application_of
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.checked_receipts import CombinedReceipts
from lakesink.sinks.iceberg.side import changelog_table
from lakesink.sinks.iceberg.side.letters_table import (
    DEAD_LETTERS,
    check_letters,
    letters_table,
    other_letters,
    puts_aside,
)
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink.sinks.iceberg.side.side_table import SideTable
from lakesink.sinks.iceberg.sink_table import RunMemory, SinkTable
from lakesink.sinks.unused_accept import UnusedAcceptWarning
from lakesink.task.changelog import METADATA
from lakesink_catalog.commit.decision import Decision
from lakesink_protocol.identity import LEDGER_PREFIX, SinkKey
from lakesink_protocol.row_changes import CHANGELOG_OF

Make = Callable[[SideTable, str, pa.Schema], SideTableSink]
"""Makes the participant of a side table, from its kind, its name, and the columns of its rows."""


@dataclass(frozen=True, slots=True)
class SideTables:
    """The side tables of one sink.

    Attributes:
        own: The sink's own table.
        letters: Gets rows that are put aside. A batch that an earlier run prepared can have some, even if the query
            puts none aside now.
        changelog: Gets all changes; None without the option `changelog_table`.
        used: Those that the rows of this query may need.
    """

    own: SinkTable
    letters: SideTableSink
    changelog: SideTableSink | None
    used: tuple[SideTableSink, ...]

    @classmethod
    def of(cls, own: SinkTable, expected: Sequence[Expected], make: Make) -> "SideTables":
        """Those of a table; raises SettingsError if an option names a table that cannot be one."""
        table, settings = own.table, own.settings
        letters, changelog = make(DEAD_LETTERS, letters_table(table, settings), LETTERS), None
        if settings.changelog_table is not None:
            changelog_table.check_changelog_name(table, settings.changelog_table)
            changelog = make(changelog_table.CHANGELOG, settings.changelog_table, METADATA)
        used = (letters if puts_aside(settings, expected) else None, changelog)
        return cls(own, letters, changelog, tuple(side for side in used if side is not None))

    @property
    def all(self) -> tuple[SideTableSink, ...]:
        """Those that may have rows of an earlier batch, whether this query needs them or not."""
        return (self.letters,) if self.changelog is None else (self.letters, self.changelog)

    def opened(self, name: str) -> SideTableSink:
        """The participant that votes or a record name; raises WriteError if the query has no such table."""
        for side in self.all:
            if side.name == name:
                return side
        if self.own.settings.has_changes:
            raise changelog_table.other_changelog(name, self.own.settings)
        raise other_letters(name, self.letters)

    def _plan_for(self, side: SideTableSink, decision: Decision, own: WritePlan) -> WritePlan:
        """The plan of a batch for one of them; `own` is that of the sink's own table."""
        if side is not self.changelog:
            return side.plan_for(decision.situation.batch, decision.situation)
        assert own.changes is not None, "only changes have a changelog"
        side.follow(changelog_table.changelog_columns(own.schema_json, own.changes, self.own.table))
        plan = side.plan_for(decision.situation.batch, decision.situation)
        changelog_table.check_filled(side.table, plan.schema_json, side.columns)
        changelog_table.check_is_logged(decision, side)
        return plan

    def plans(self, decision: Decision, plan: WritePlan) -> tuple[SidePlan, ...]:
        """Where the rows of a batch go that these tables get; `plan` is that of the sink's own table."""
        own, batch, changelog = self.own, decision.situation.batch, self.changelog
        plans = [self._plan_for(side, decision, plan) for side in self.used]
        named = None if changelog is None else changelog.table
        name = f"{CHANGELOG_OF}{own.key.ledger_property.removeprefix(LEDGER_PREFIX)}"
        if own.found.properties.get(name) != named:
            changelog_table.note_changelog(own.connected(), own.found, own.key, batch, name, named)
        uuid = str(own.found.metadata.table_uuid)
        return tuple(
            SidePlan(side.name, own.key, uuid, application_of(side.key(batch)), of_side, logs=side is changelog)
            for side, of_side in zip(self.used, plans, strict=True)
        )

    def check(self, counted: CombinedReceipts, batch_id: int, *, logs: bool) -> None:
        """Check that both receipts of the tasks say the same; `logs` is true if the batch goes to a changelog."""
        check_letters(counted.quality, counted.rows, self.letters, self.own.settings, batch_id)
        if self.changelog is not None and logs:
            changelog_table.check_changelog(counted, self.changelog, batch_id)


def of_side_table(own: Settings) -> Settings:
    """The options of a sink that its side tables have too."""
    shared = ("prepared_max_age", "ledger_tag", "ledger_tag_max_age", "max_clock_ahead")
    return replace(Settings(), **{name: getattr(own, name) for name in shared})


def side_participant(
    own: SinkTable,
    make_sink: Callable[..., Any],
    of_own: UnusedAcceptWarning,
    kind: SideTable,
    table: str,
    columns: pa.Schema,
) -> SideTableSink:
    """The participant for rows with these columns, with the options and the catalog of the sink's own table.

    `own` has no name, and is not asked for its table, if the sink writes to none. `make_sink`, which is `IcebergSink`,
    makes the sink that writes a side table. An accept that `of_own` has seen used is for no other target.
    """
    settings = replace(of_side_table(own.settings), schema_evolution=kind.schema_evolution)

    def open_table(key: SinkKey, columns: pa.Schema) -> Any:
        return make_sink(
            table,
            key,
            own.connected,
            replace(settings, create_table=True, accept=None if of_own.used else own.settings.accept),
            columns,
            effects=own.effects,
            memory=RunMemory(clock=own.memory.clock, left_out=own.memory.left_out),
            words=kind.words,
        )

    find = (lambda: own.found) if own.table else lambda: None
    return SideTableSink(kind, table, own.key, find, columns, settings, own.connected, open_table)
