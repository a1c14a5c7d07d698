"""A kind of tables that the batches of a sink also write: what their rows are, and what lets a batch in.

No way out loses rows of a batch that landed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import BatchWrite, plan_batch
from lakesink.sinks.iceberg.side.begun_replays import replays_back
from lakesink.sinks.iceberg.side.side_batches import (
    KeyOf,
    SideBatch,
    WayBack,
    all_batches,
    in_snapshots,
    left_behind,
    left_by_forgotten,
    side_batches,
    way_back,
)
from lakesink_catalog.read.landed import Landed, newest_batch
from lakesink_catalog.read.view import view_table
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import Batch, SinkKey, SinkKind
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.situation import Situation


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
) -> BatchWrite:
    """How rows with these columns are written into a side table; raises WriteError if it has other columns."""
    try:
        return plan_batch(table, batch, key, settings, columns, case_sensitive=False)
    except WriteError as error:
        name = ".".join(table.name())
        raise WriteError.of(
            "SCHEMA_MISMATCH.side_table", table=name, keeps=kind.keeps, what=error.what, option=kind.option
        ) from None


@dataclass(frozen=True, slots=True)
class WaysOut:
    """The ways out for one side table of a sink.

    Attributes:
        name: Of the side table.
        own: The sink's own table, loaded after the side table; None if the sink writes to no table.
        owner: The sink's key.
    """

    kind: SideTable
    name: str
    catalog: Catalog
    own: Table | None
    owner: SinkKey

    def has_landed(self, seen: Situation) -> bool:
        """True if the own table has got the batch since it was seen: a rival has gone on in both tables."""
        newest, batch = newest_batch(self._own, self.owner), seen.batch
        if newest is None or newest == seen.entry:
            return False
        return newest.query_id == batch.query_id and newest.batch_id >= batch.batch_id

    def check_none_left(self, table: Table, batch: Batch) -> None:
        """Refuse the first batch of a query if the table has rows of another query's batch that no run can complete.

        A stream that lacks an earlier batch of its own goes on by the word of an operator.
        """
        found = left_behind(table, self.kind.key_of, self.owner, self._own)
        left = [
            one
            for one in found
            if one.query_id != batch.query_id or (has_gaps(self.owner) and one.batch_id != batch.batch_id)
        ]
        if left:
            running = f"If another query of sink {self.owner.name!r} is running, stop one of them, and start this one"
            raise self._never_got(table, batch, left, f"{running} again.")
        # A new sink may read the rows of one that was removed once more.
        others = left_by_forgotten(table, self.kind.key_of, self._own, self.owner)
        for sink, left in others if newest_batch(self._own, self.owner) is None else ():
            raise self._never_got(table, batch, left, by=f", by sink {sink.name!r}, which has no ledger entry any more")

    def _never_got(
        self, table: Table, batch: Batch, left: Sequence[SideBatch], *first: str, by: str = ""
    ) -> WriteError:
        kind, batches = self.kind, counted(len(left), "batch")
        of_own = not by and left[0].query_id == batch.query_id
        back = f"Run batch {left[0].batch_id} again as it was." if of_own else self._way_back(table, left)
        return WriteError(
            kind.code,
            f"{self.name} has {kind.keeps} of {batches} that {'.'.join(self._own.name())} never got.",
            data=f"Nothing of batch {batch.batch_id} was written.",
            action=(
                *first,
                *(() if back is None else (f"{back} Then start this one again.",)),
                f"Start the query with another {kind.option}: the {kind.keeps} of these batches stay where they are.",
            ),
            details=[f"{in_snapshots(left)}{by}"],
        )

    def rewound(self, table: Table, batch: Batch, newest: int) -> WriteError:
        """The error for a batch after which the table has this later one."""
        kind = self.kind
        return WriteError(
            kind.code,
            f"{self.name} has {kind.keeps} of batch {newest}, but the next batch is {batch.batch_id}.",
            data=f"Nothing of batch {batch.batch_id} was written.",
            action=self.of(table, batch),
        )

    def of(self, table: Table, batch: Batch, as_it_was: str = "") -> Sequence[str]:
        """What lets a batch in, of which or after which the table has rows: none loses those of a batch that landed.

        A batch that was rolled back has come as it was before, perhaps cut elsewhere by its source. A target that is no
        table does not tell which batches it has.
        """
        another = f"Start the query with another {self.kind.option}: the earlier {self.kind.keeps} stay where they are."
        first = (as_it_was,) if as_it_was else ()
        if self.own is None:
            return (*first, another)
        own = self.own
        landed = Landed(own, self.owner)
        found = side_batches(all_batches(table), self.kind.key_of, self.owner, str(own.metadata.table_uuid))
        later = [one for one in found if one.query_id == batch.query_id and one.batch_id >= batch.batch_id]
        if any(landed.has(one.query_id, one.batch_id, one.after) is not False for one in later):
            return (*first, another)
        general = f"Roll {self.name} back to its snapshot before batch {batch.batch_id}."
        back = self._way_back(table, [one for one in later if one.snapshot])
        others = () if back is not None and self.kind.is_read else (another,)
        back = back or general
        view = view_table(own, self.owner)
        seen = Situation(view, self.owner, batch, view.table_uuid)
        if seen.rolled_back or batch.batch_id in seen.undone:
            first, back = (), f"{'.'.join(own.name())} was rolled back, and {self.name} was not. {back}"
        return (*first, f"{back} Then start the query again.", *others)

    def _way_back(self, table: Table, left: Sequence[SideBatch]) -> str | None:
        ways = self.kind.ways_back(self.catalog, table, left, self._own, self.owner.branch)
        return None if ways is None else " ".join(map(str, ways))

    @property
    def _own(self) -> Table:
        assert self.own is not None, "a target that is no table never lacks a batch"
        return self.own


def has_gaps(owner: SinkKey) -> bool:
    """True for versions of a batch job: one that was given up may be followed by another one."""
    return owner.kind is not SinkKind.STREAM
