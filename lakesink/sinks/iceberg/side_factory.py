"""Makes the participants of a sink's side tables, and tells its tasks where their rows go."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakesink.rows.plan import WritePlan
from lakesink.rows.side_rows import SidePlan, application_of
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.side.changelog_table import note_changelog
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink.sinks.iceberg.side.side_table import SideTable
from lakesink.sinks.iceberg.side.side_tables import SideTables
from lakesink.sinks.iceberg.sink_table import RunMemory, SinkTable
from lakesink_catalog.commit.decision import Decision
from lakesink_protocol.identity import SinkKey

_SHARED_WITH_SIDE_TABLES = ("prepared_max_age", "ledger_tag", "ledger_tag_max_age", "max_clock_ahead")
"""Options of a sink that its side tables have too."""


@dataclass(slots=True)
class SideFactory:
    """Makes them with the options and the catalog of the sink's own table.

    Attributes:
        make_sink: Makes the sink that writes a side table once it is opened: `IcebergSink`.
        has_accepted: True once an operator's accept has overruled a refusal of the own table: it is for no other one.
    """

    own: SinkTable
    make_sink: Callable[..., Any]
    has_accepted: bool = False

    def participant(self, kind: SideTable, table: str, columns: pa.Schema) -> SideTableSink:
        """The participant for rows with these columns."""
        own = self.own
        settings = replace(Settings(), **{name: getattr(own.settings, name) for name in _SHARED_WITH_SIDE_TABLES})
        settings = replace(settings, schema_evolution=kind.schema_evolution)

        def open_table(key: SinkKey, columns: pa.Schema) -> Any:
            accept = None if self.has_accepted else own.settings.accept
            return self.make_sink(
                table,
                key,
                own.connected,
                replace(settings, create_table=True, accept=accept),
                columns,
                effects=own.effects,
                memory=RunMemory(clock=own.memory.clock, left_out=own.memory.left_out),
                words=kind.words,
            )

        return SideTableSink(kind, table, own.key, lambda: own.found, columns, settings, own.connected, open_table)

    def plans(self, tables: SideTables, decision: Decision, plan: WritePlan) -> tuple[SidePlan, ...]:
        """Where the rows of a batch go that its side tables get; `plan` is that of the own table."""
        own, batch, changelog = self.own, decision.situation.batch, tables.changelog
        plans = [tables.plan_for(side, decision, plan) for side in tables.used]
        named = None if changelog is None else changelog.table
        note_changelog(own.connected(), own.found, own.key, batch, named)
        uuid = str(own.found.metadata.table_uuid)
        return tuple(
            SidePlan(side.name, own.key, uuid, application_of(side.key(batch)), of_side, logs=side is changelog)
            for side, of_side in zip(tables.used, plans, strict=True)
        )
