"""The key of a table: its identifier fields, by which a batch replaces and deletes rows. Pure."""

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.ledger import LedgerEntry
from lakesink_protocol.redact import shown

LONGEST_NAMES = 90


def check_key(table: Table, entry: LedgerEntry | None, key_ids: Sequence[int]) -> None:
    """Refuse, before rows are written, to replace or delete rows by a key of which others do not know.

    Raises:
        CatalogError: `KEY_CHANGED` if the table, or the sink's newest batch in the ledger, has another key.
    """
    present = set(table.schema().identifier_field_ids)
    if present != set(key_ids):
        raise _key_changed("the table's identifier fields are", table.schema(), sorted(present))
    if entry is not None and entry.keys and set(entry.keys) != present:
        raise _key_changed("the sink's earlier batches had the key", table.schema(), entry.keys)


def key_holds(changes: PreparedChanges | None, present: Schema) -> bool:
    """True if the key of a prepared batch is that of this schema of the table, and its sequence columns are there.

    `is_compatible` checks the types: a key that was widened is compared as the wider type.
    """
    if changes is None:
        return True
    columns = {field.field_id for field in present.fields}
    return set(changes.key_ids) == set(present.identifier_field_ids) and columns >= {
        *changes.key_ids,
        *changes.sequence_ids,
    }


def _key_changed(whose: str, schema: Schema, field_ids: Sequence[int]) -> CatalogError:
    names = ", ".join(schema.find_column_name(number) or f"field {number} (dropped)" for number in field_ids) or "none"
    return CatalogError.of("KEY_CHANGED", whose=whose, names=shown(names, LONGEST_NAMES))
