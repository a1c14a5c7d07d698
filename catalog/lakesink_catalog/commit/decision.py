"""A decision about a batch on the table as it was loaded, and whether a prepared batch still fits it."""

from dataclasses import dataclass

from pyiceberg.table import Table

from lakesink_catalog.commit.evolution import ChangeImpossible, brings_columns_of, evolve
from lakesink_catalog.commit.identifier_fields import key_holds
from lakesink_catalog.commit.premises import is_compatible
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Verdict


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
    premises = prepared.premises
    if prepared.schema_change is None:
        present = decision.table.schema()
        holds = premises.hold_in(metadata) and key_holds(prepared.changes, present)
        return holds and is_compatible(premises.schema, present)
    try:
        evolved = evolve(decision.table, prepared.schema_change).table
    except ChangeImpossible:
        return False
    return (
        key_holds(prepared.changes, evolved.schema())
        and premises.specs_hold_in(metadata)
        and is_compatible(premises.schema, evolved.schema())
        and brings_columns_of(premises.schema, decision.table, evolved)
    )
