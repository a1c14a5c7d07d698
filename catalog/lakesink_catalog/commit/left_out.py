"""What a catalog leaves out of the commits that it accepts, and the words about it. Pure.

The rows, the head and the ledger entry are there, so the batch is in the table. The rest is missing without an error.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetSnapshotRefUpdate, TableUpdate

from lakesink_catalog.connect.first_snapshot import says_it_is_nessie
from lakesink_protocol.errors import CatalogError


@dataclass(slots=True)
class LeftOut:
    """What one run has seen a catalog leave out.

    Attributes:
        tags: Tags of the last commit.
        parents: The parents of snapshots. Its answers show a batch without its parent, as the table does.
    """

    tags: bool = field(default=False, init=False)
    parents: bool = field(default=False, init=False)


def shows_refs(metadata: TableMetadata, updates: Iterable[TableUpdate]) -> bool:
    """True if the table has every tag and branch where these updates put it."""
    moves = [update for update in updates if isinstance(update, SetSnapshotRefUpdate)]
    shown = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    return all(shown.get(move.ref_name) == move.snapshot_id for move in moves)


def check_keeps_refs(option: str, properties: Mapping[str, Any]) -> None:
    """Refuse an option that needs tags or branches, on a catalog that is known to leave them out."""
    if says_it_is_nessie(properties):
        raise CatalogError.of("CATALOG_WITHOUT_TAGS.known", option=option)
