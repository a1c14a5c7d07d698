"""A decision about a batch on the table as it was loaded, and whether batch, key and branch still fit the table."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink_catalog.commit.evolution import ChangeImpossible, brings_columns_of, evolve
from lakesink_catalog.commit.premises import is_compatible
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.connect.first_snapshot import protects_first_snapshots
from lakesink_catalog.snapshots import head_of
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.ledger import LedgerEntry
from lakesink_protocol.redact import shown
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Verdict

_LONGEST_NAMES = 90


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision about a batch, on the table as loaded at `at_ms`. Files of the batch are not older than that."""

    table: Table
    situation: Situation
    verdict: Verdict
    at_ms: int


def still_usable(decision: Decision, prepared: PreparedBatch) -> bool:
    """True if ledger and accept are those of the prepare, and the files fit the specs and the schema of the commit.

    That is the current schema with the batch's own change of it.

    An accept covers only files that were prepared under it: files prepared without it may already be in the table. If
    their snapshot is in the table although the verdict is to commit, the files are unusable too.
    """
    assert isinstance(decision.verdict, Commit)
    metadata = decision.table.metadata
    if (decision.situation.entry, decision.verdict.accepted) != (prepared.follows, prepared.accepted):
        return False
    if prepared.snapshot_id in decision.situation.view.snapshots:
        return False
    premises, change = prepared.premises, prepared.schema_change
    try:
        evolved = evolve(decision.table, change).table
    except ChangeImpossible:
        return False
    if not _key_holds(prepared.changes, evolved.schema()) or not is_compatible(premises.schema, evolved.schema()):
        return False
    if change is None:
        return premises.hold_in(metadata)
    return premises.specs_hold_in(metadata) and brings_columns_of(premises.schema, decision.table, evolved)


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


def check_has_head(table: Table, branch: str) -> None:
    """Refuse a branch without a snapshot, if the catalog would not protect its first one."""
    *namespace, _ = table.name()
    if head_of(table, branch) is not None or protects_first_snapshots(table.catalog, tuple(namespace)):
        return
    name, catalog = ".".join(table.name()), table.catalog.name
    what = f"The branch {branch} of {name}" if table.metadata.snapshots else name
    arguments = shlex.join([name, "--catalog", catalog])
    raise CatalogError.of("FIRST_SNAPSHOT_UNPROTECTED", what=what, catalog=catalog, table=name, arguments=arguments)


def _key_holds(changes: PreparedChanges | None, present: Schema) -> bool:
    """True if the schema has the key and sequence columns of a prepared batch; `is_compatible` checks their types."""
    if changes is None:
        return True
    columns = {field.field_id for field in present.fields}
    return set(changes.key_ids) == set(present.identifier_field_ids) and columns >= {
        *changes.key_ids,
        *changes.sequence_ids,
    }


def _key_changed(whose: str, schema: Schema, field_ids: Sequence[int]) -> CatalogError:
    names = ", ".join(schema.find_column_name(number) or f"field {number} (dropped)" for number in field_ids) or "none"
    return CatalogError.of("KEY_CHANGED", whose=whose, names=shown(names, _LONGEST_NAMES))
