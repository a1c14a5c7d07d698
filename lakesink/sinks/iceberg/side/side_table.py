"""A kind of tables that the batches of a sink also write: what their rows are, and how to say so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.rows.plan import WritePlan
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.evolution import plan_write
from lakesink.sinks.iceberg.side.begun_replays import replays_back
from lakesink.sinks.iceberg.side.side_batches import (
    KeyOf,
    SideBatch,
    WayBack,
    way_back,
)
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.refusals.texts import Words


@dataclass(frozen=True, slots=True)
class SideTable:
    """A kind of side tables.

    Attributes:
        keeps: What its rows are, for messages: ``dead letters``.
        option: The option that names such a table.
        code: Of the error for batches that differ from those of the sink's own table.
        key_of: The application that writes for a sink, a query and a table.
        words: Messages of refusals.
        as_it_was: How a batch is started again that an earlier run did not complete.
        differ: The error for a batch with so many rows that are others than those of an earlier run; takes what lets
            the batch in.
        unfit: The error for a table with other columns.
        schema_evolution: Whether the table follows the columns of the rows.
        has_replays: Whether its rows are replayed: a table of replays then goes back with it.
        is_read: Its readers take each row as it comes: rows of a batch that is written elsewhere must not stay.
    """

    keeps: str
    option: str
    code: str
    key_of: KeyOf
    words: Sequence[Words]
    as_it_was: str
    differ: Callable[[str, Batch, int, Sequence[str]], WriteError]
    unfit: Callable[[str, WriteError], WriteError]
    schema_evolution: SchemaEvolution = SchemaEvolution.FAIL
    has_replays: bool = False
    is_read: bool = False

    def ways_back(
        self, catalog: Catalog, side: Table, left: Sequence[SideBatch], own: Table, branch: str
    ) -> list[WayBack] | None:
        """What takes these batches out, and their replays; None if it would take others out too."""
        back = way_back(side, left)
        also = replays_back(catalog, own, side, branch) if back and self.has_replays else []
        return None if back is None or also is None else [back, *also]


def side_plan(
    kind: SideTable, table: Table, batch: Batch, key: SinkKey, settings: Settings, columns: pa.Schema
) -> WritePlan:
    """The plan to write rows with these columns into a side table; raises WriteError if it has other columns."""
    try:
        return plan_write(table, batch, key, settings, columns, case_sensitive=False).plan
    except WriteError as error:
        raise kind.unfit(".".join(table.name()), error) from None
