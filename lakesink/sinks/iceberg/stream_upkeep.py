"""The maintenance of a sink's tables between its batches. No batch depends on it, and it fails none."""

from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from pyiceberg.table import Table

from lakesink.keys.work import RunInExecutors
from lakesink.sinks.iceberg.rows_on_head import LocateMemory
from lakesink.sinks.iceberg.side.side_tables import SideTables
from lakesink.sinks.iceberg.sink_table import SinkTable
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance, UpkeepMemory
from lakesink.sinks.iceberg.upkeep.policy import Policy, manager_of
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol import events
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.ledger import COMPACTED
from lakesink_protocol.redact import describe

SHORTEST_MS, LONGEST_MS = 500, 2_000
"""Of a budget that the option does not state: as long as the query waited for its newest batch. So none is late."""


@dataclass(slots=True)
class StreamUpkeep:
    """The maintenance of one sink's branch, and of the side tables that its batches write.

    Attributes:
        located: What the sink remembers of its table to locate changes.
        batch_id: The batch that has landed; None at the end of a query.
        run_in_executors: None where there is no session.
    """

    target: SinkTable
    side_tables: SideTables
    located: LocateMemory
    batch_id: int | None
    run_in_executors: RunInExecutors | None = None

    def run(self, *, at_end: bool) -> None:
        """Maintain the own table, then side tables with new rows, within the budget; at the end of a query, all."""
        target, clock = self.target, self.target.effects.monotonic_ms
        manager = manager_of(target.connected().properties, target.found.properties)
        if manager is not None:
            self._warn_once(events.TableMaintainedElsewhere(target.table, manager.name, manager.said_by))
            return
        waited_ms = LONGEST_MS if target.memory.waited_ms is None else target.memory.waited_ms
        budget = timedelta(milliseconds=max(SHORTEST_MS, min(waited_ms, LONGEST_MS)))
        given: Mapping[str, Any] = {"budget": budget, **(target.settings.maintenance or {})}
        policy, began, memories = Policy(**given), clock(), target.memory.upkeep
        keys = target.found.schema().identifier_field_ids  # the same bounds as where changes are located
        of_sink = UpkeepMemory(self.located.live, self.located.deletes, merges=target.memory.merges, bounds_of=keys)
        own = memories.setdefault("", of_sink)
        of_run = replace(policy, budget=None) if at_end else policy
        self._maintain(target.table, target.load, target.key.branch, of_run, own)
        for side in self.side_tables.used:
            left = given["budget"] - timedelta(milliseconds=clock() - began)
            if at_end or (side.voted[1] and left > timedelta(0)):
                of_side = replace(policy, budget=None if at_end else left, where="")
                load = partial(load_table, target.connected(), side.table)
                memory = memories.setdefault(side.table, UpkeepMemory())
                self._maintain(side.table, load, MAIN_BRANCH, of_side, memory)

    def _maintain(
        self, name: str, load: Callable[[], Table], branch: str, policy: Policy, memory: UpkeepMemory
    ) -> None:
        target = self.target
        says, batch_id = {COMPACTED: target.key.ledger_property}, -1 if self.batch_id is None else self.batch_id
        given = load, branch, policy, target.effects, memory, says, batch_id, self.run_in_executors
        maintenance = Maintenance(*given, target.settings.effective)
        try:
            report = maintenance.run()
            if report.after.past and policy.gate:
                report = replace(maintenance, policy=replace(policy, budget=None)).run()
            if report.after.past:
                self._warn_once(events.TableUnhealthy(name, ", ".join(report.after.past)))
        except CancelledError:  # the query was stopped
            raise
        except Exception as error:  # noqa: BLE001 - the table is right without it
            target.effects.emit(events.MaintenanceFailed(name, describe(error, target.connected().properties)))

    def _warn_once(self, event: events.TableUnhealthy | events.TableMaintainedElsewhere) -> None:
        """Once in a run of the query."""
        said = f"{type(event).__name__} {event.table}"
        if said not in self.target.memory.reported:
            self.target.memory.reported.add(said)
            self.target.effects.emit(event)
