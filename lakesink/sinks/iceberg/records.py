"""Whether the prepared batch that an earlier run left can still be committed."""

from pyiceberg.table import Table

from lakesink.keys.keys_file import is_keys_file
from lakesink.sinks.iceberg.checked_receipts import is_data_file
from lakesink_catalog.commit.decision import Decision, still_usable
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.recovery import matches_keys_files, matches_manifests
from lakesink_catalog.connect.catalog_failures import translate_storage_errors
from lakesink_catalog.tables.locations import all_under, data_location, is_under, metadata_location


def why_unusable(decision: Decision, prepared: PreparedBatch, file_stem: str, effects: Effects) -> str | None:
    """The reason that a prepared batch can no longer be committed; None if it can."""
    table = decision.table
    if not still_usable(decision, prepared):
        return "the ledger, the schema or the specs changed"
    manifests = (manifest.path for manifest in prepared.manifests)
    own = (is_data_file(path, data_location(table), file_stem) for path, _ in prepared.files)
    if not all_under(manifests, metadata_location(table)) or not all(own):
        return "a path is outside the table's locations, or belongs to another batch"
    io = table.io
    if not prepared.is_there(io, effects.at_once):
        return "a file is missing or has another size"
    if not translate_storage_errors(io.properties, lambda: matches_manifests(prepared, io)):
        return "its manifests name other files than it does"
    return _keys_trouble(prepared, table, file_stem, effects)


def _keys_trouble(prepared: PreparedBatch, table: Table, file_stem: str, effects: Effects) -> str | None:
    """The reason that its keys files cannot be used; None if they can, or if there are none."""
    files = () if prepared.changes is None else prepared.changes.keys_files
    folder = data_location(table)
    if not all(is_under(file.path, folder) and is_keys_file(file.path, folder, file_stem, file.task) for file in files):
        return "a keys file is outside the table's location, or belongs to another batch"
    if not translate_storage_errors(
        table.io.properties, lambda: matches_keys_files(prepared, table.io, effects.at_once)
    ):
        return "a keys file is missing, or is not the one that its task wrote"
    return None
