"""Replays that were begun and that their table lacks: a driver died, or the table was rolled back behind them."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import cast

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakesink.rows.letters import REPLAYS_SUFFIX
from lakesink.sinks.iceberg.side.side_batches import SideBatch, WayBack, way_back
from lakesink_catalog.read.landed import newest_batch
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import find_table
from lakesink_protocol.identity import SinkKey, SinkKind, digest
from lakesink_protocol.ledger import mark_of
from lakesink_protocol.quality import REPLAY


def replay_key(table: Table, letters: Table, branch: str) -> SinkKey:
    """How applications are called that replay letters into a branch of a table. It follows tables that are renamed."""
    of = {"table": str(table.metadata.table_uuid), "letters": str(letters.metadata.table_uuid), "branch": branch}
    return SinkKey(f"{REPLAY}{digest(of)[:16]}", branch, SinkKind.TXN)


def begun_replays(catalog: Catalog, table: Table, letters: Table, branch: str) -> tuple[Table, list[SideBatch]] | None:
    """The table of replays, and those that its snapshots show and the table lacks, newest first; None for none."""
    replays = find_table(catalog, ".".join(letters.name()) + REPLAYS_SUFFIX)
    if replays is None:
        return None
    begins, last = replay_key(table, letters, branch).name, cache(lambda key: newest_batch(table, key))
    found = []
    for snapshot in view_table(replays, SinkKey(".".join(replays.name()))).ancestry():
        mark = mark_of(snapshot.summary)
        if mark is None or not mark.key.name.startswith(begins):
            continue
        newest = last(replace(mark.key, branch=branch))
        if newest is None or mark.batch_id > newest.batch_id:
            found.append(SideBatch(mark.key, "", mark.batch_id, 0, cast("Snapshot", snapshot)))
    return (replays, found) if found else None


def replays_back(catalog: Catalog, table: Table, letters: Table, branch: str) -> list[WayBack] | None:
    """What takes begun replays out of their table; empty if there are none, None if it would take others out too."""
    found = begun_replays(catalog, table, letters, branch)
    back = None if found is None else way_back(*found)
    return [] if found is None else None if back is None else [back]


def assigned_letters(replays: Table, one: SideBatch) -> list[str]:
    """The letters of a replay."""
    values = {"application": literal(one.key.name), "replay": literal(one.batch_id)}
    of = And(*(EqualTo(term=Reference(name), value=value) for name, value in values.items()))
    found: list[str] = replays.scan(row_filter=of, selected_fields=("letter_id",)).to_arrow()["letter_id"].to_pylist()
    return found


def lost_letters(letters: Table, ids: Iterable[str]) -> int:
    """How many of these letters are not in the table any more."""
    lost = set(ids)
    for batch in letters.scan(selected_fields=("letter_id",)).to_arrow_batch_reader():
        lost.difference_update(batch["letter_id"].to_pylist())
    return len(lost)
