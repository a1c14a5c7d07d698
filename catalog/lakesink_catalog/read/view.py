"""Reads the facts for a verdict from a table's metadata, and proof from manifest lists and older metadata files."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType

from lakesink_catalog.read.earlier import Versions
from lakesink_catalog.snapshots import snapshots_by_id
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey
from lakesink_protocol.ledger import LARGEST_NUMBER, EntryUnreadable, LedgerEntry, TableView, parse_entry
from lakesink_protocol.quality import LETTERS_TABLE
from lakesink_protocol.row_changes import logged_changes
from lakesink_protocol.situation import Situation
from lakesink_protocol.tags import Refs


def view_table(table: Table, key: SinkKey) -> TableView:
    """The state of a sink in a freshly loaded table."""
    return view_metadata(table.metadata, table.io, key)


def view_metadata(metadata: TableMetadata, io: FileIO, key: SinkKey) -> TableView:
    """The state of a sink in one version of a table's metadata."""
    entry, damage = _read_entry(metadata.properties.get(key.ledger_property))
    branch, tag = metadata.refs.get(key.branch), metadata.refs.get(key.ledger_tag)
    if branch is not None and branch.snapshot_ref_type is not SnapshotRefType.BRANCH:
        branch = None  # writing it would turn another user's tag into a branch and move it
    head = branch.snapshot_id if branch else None
    return TableView(
        table_uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        branch_exists=branch is not None or key.branch == MAIN_BRANCH,
        head=head,
        entry=entry,
        entry_damage=damage,
        snapshots=snapshots_by_id(metadata),
        tag_snapshot_id=tag.snapshot_id if tag else None,
        last_sequence_number=getattr(metadata, "last_sequence_number", 0),  # version 1 has none
        branch_contains=partial(_branch_contains, metadata, io, head),
        elsewhere=dict(_entries_elsewhere(metadata, key)),
    )


def view_refs(table: Table) -> Refs:
    """Branches and tags of a table, in the form that audit tags need."""
    snapshots = snapshots_by_id(table.metadata)
    return {
        name: snapshots.get(ref.snapshot_id) if ref.snapshot_ref_type is SnapshotRefType.TAG else None
        for name, ref in table.metadata.refs.items()
    }


def check_tag_name(table: Table, key: SinkKey) -> None:
    """Refuse a branch with the name of the ledger tag: setting the tag would turn that branch into a tag."""
    there = table.metadata.refs.get(key.ledger_tag)
    if there is None or there.snapshot_ref_type is SnapshotRefType.TAG:
        return
    raise CatalogError.of("TAG_NAME_TAKEN", name=key.name, tag=key.ledger_tag)


def _read_entry(text: str | None) -> tuple[LedgerEntry | None, str]:
    if text is None:
        return None, ""
    try:
        return parse_entry(text), ""
    except EntryUnreadable as error:
        return None, str(error)


def _entries_elsewhere(metadata: TableMetadata, key: SinkKey) -> Iterator[tuple[str, LedgerEntry | None]]:
    of_main = replace(key, branch=MAIN_BRANCH).ledger_property
    for name, text in metadata.properties.items():
        if name != key.ledger_property and (name == of_main or name.startswith(f"{of_main}@")):
            yield name.removeprefix(of_main).removeprefix("@") or MAIN_BRANCH, _read_entry(text)[0]


def _branch_contains(metadata: TableMetadata, io: FileIO, head: int | None, snapshot_id: int) -> bool:
    if head is None:
        return False
    return _content_is_under(metadata, io, head, snapshot_id) or _linked_in_history(metadata, io, head, snapshot_id)


def _content_is_under(metadata: TableMetadata, io: FileIO, head: int, snapshot_id: int) -> bool:
    """True if the head has every manifest of the older snapshot. A batch without rows has none: nothing is missing."""
    older, newer = map(snapshots_by_id(metadata).get, (snapshot_id, head))
    if older is None or newer is None:
        return False
    lists = [read_manifest_list(io.new_input(snapshot.manifest_list)) for snapshot in (older, newer)]
    of_older, of_newer = ({manifest.manifest_path: manifest.added_snapshot_id for manifest in one} for one in lists)
    said = older.summary.additional_properties if older.summary else {}
    has_side_rows = said.get(LETTERS_TABLE) or logged_changes(said)
    if has_side_rows and snapshot_id not in of_older.values():
        return False
    return of_older.keys() <= of_newer.keys()


def _linked_in_history(metadata: TableMetadata, io: FileIO, head: int, snapshot_id: int) -> bool:
    """Parents never change, so earlier metadata files, newest first, still show links that expiry removed."""
    versions = Versions(metadata, io)
    while snapshot_id not in versions.ids_under(head):
        if not versions.read_earlier():
            return False
    return True


def newest_summary(seen: Situation, query_id: str | None, before: int = LARGEST_NUMBER) -> Mapping[str, Any]:
    """What the newest batch of a query, or of any, before one says; an old batch that was accepted does not count."""
    moved = (found for found in seen.own() if found[0].batch_id == found[0].ledger_batch_id < before)
    return next((seen.summary_of(snapshot) or {} for mark, snapshot in moved if query_id in (None, mark.query_id)), {})
