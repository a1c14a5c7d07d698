"""What side tables still have of batches that were rolled back from the table of a sink."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.rows.letters import SUFFIX, is_replay_of
from lakesink.sinks.iceberg.side.begun_replays import begun_replays
from lakesink.sinks.iceberg.side.changelog_table import CHANGELOG
from lakesink.sinks.iceberg.side.letters_table import DEAD_LETTERS
from lakesink.sinks.iceberg.side.side_batches import WayBack, left_behind
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink.sinks.iceberg.side.side_table import SideTable
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_catalog.read.past import by_sink, retained
from lakesink_catalog.tables.tables import load_table
from lakesink_catalog.words import counted
from lakesink_protocol.errors import BatchRefused, CatalogError, Reason
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.quality import LETTERS_TABLE
from lakesink_protocol.row_changes import CHANGELOG_TABLE


@dataclass(frozen=True, slots=True)
class Left:
    """What one side table still has.

    Attributes:
        table: The sink's own table; empty for a batch job, which has no checkpoint to take back.
        batches: Their ids, the oldest first.
        said: What is left, for messages.
        step: What is to be done before the batches are replayed.
        ways: The same for `lakesink rewind`; None if no rollback takes them out.
        stays: What becomes of it if they are not.
    """

    kind: SideTable
    table: str
    batches: tuple[int, ...]
    said: str
    step: str
    ways: Sequence[WayBack] | None
    stays: str


def with_side_tables(refused: BatchRefused, own: Table, sides: Iterable[SideTableSink]) -> BatchRefused:
    """The refusal, after a rollback with the side tables that have batches which the table has no more.

    A new sink of a copy of the table takes none of the side tables of the old one.
    """
    if refused.reason is Reason.TABLE_REPLACED:
        old = [(one.kind, one.table) for one in sides if one.has_batches]
        keep = [f"Name another {kind.option} then: {name} has {kind.keeps} of the old table." for kind, name in old]
        ways = refused.choices or (refused.action,)
        return refused.reworded(action=[" ".join((way, *keep)) if "new sink id" in way else way for way in ways])
    if refused.reason is not Reason.ROLLED_BACK:
        return refused
    found = (left_in(side.kind, side.connected(), side.table, side.owner, own) for side in sides)
    return with_left(refused, [one for one in found if one is not None])


def with_left(refused: BatchRefused, left: Sequence[Left]) -> BatchRefused:
    """The refusal with what is left: it must go before batches are replayed, and stays if an operator accepts."""
    if not left:
        return refused
    said, steps = " ".join(one.said for one in left), steps_of(left)
    stays = " ".join(one.stays for one in left)
    ways = [f"{way} {stays}" if "accept=" in way else f"{steps} {way}" for way in refused.choices or (refused.action,)]
    return refused.reworded(data=f"{refused.data} {said}", action=ways)


def steps_of(left: Sequence[Left]) -> str:
    """What is to be done before the batches are replayed, and the command that does it."""
    steps = " ".join(one.step for one in left)
    if any(one.ways is None or not one.table for one in left):
        return steps
    return f"{steps} (`lakesink rewind` does this with `--table {left[0].table}`.)"


def left_of(table: Table, owner: SinkKey) -> Iterator[Left]:
    """What is left in all side tables that the batches of a sink name, also those that were rolled back."""
    batches = by_sink(retained(table).commits).get(owner, ())
    usual = [".".join(table.name()) + SUFFIX]
    for kind, named_by, known in ((DEAD_LETTERS, LETTERS_TABLE, usual), (CHANGELOG, CHANGELOG_TABLE, [])):
        named = {batch.text(named_by) for batch in batches} - {""}
        for name in sorted(named.union(known)):
            left = left_in(kind, table.catalog, name, owner, table)
            if left is not None:
                yield left


def left_in(kind: SideTable, catalog: Catalog, name: str, owner: SinkKey, table: Table) -> Left | None:
    """What one side table has; None if nothing, or if it cannot be told."""
    try:
        side = load_table(catalog, name)
        of_sink = left_behind(side, kind.key_of, owner, table)
        replays = (one for one in keys_of_ledger(table) if is_replay_of(one.name, owner) and one.branch == owner.branch)
        replayed = [batch for one in replays for batch in left_behind(side, kind.key_of, one, table)]
        if not of_sink and not replayed:
            return None
        ways = kind.ways_back(catalog, side, [*of_sink, *replayed], table, owner.branch)
        begun = begun_replays(catalog, table, side, owner.branch) if kind.has_replays else None
    except CatalogError:
        return None
    batches = tuple(one.batch_id for one in reversed(of_sink))
    several = [f"batches {batches[0]} to {batches[-1]}"] if batches[1:] else [f"batch {one}" for one in batches]
    named = " and of ".join(several + [counted(len(replayed), "replay")] * bool(replayed))
    said = f"{name} still has {kind.keeps} of {named}, which the table no longer has."
    if begun is not None:
        assigned, those = begun
        said = f"{said} {'.'.join(assigned.name())} has {counted(len(those), 'replay')} that it no longer has."
    step = " ".join(map(str, ways or ())) or f"Name another {kind.option}: no rollback takes these {kind.keeps} out."
    own = ".".join(table.name()) if owner.kind is SinkKind.STREAM else ""
    return Left(kind, own, batches, said, step, ways, f"{name} keeps the {kind.keeps} of {named}.")
