"""Converts changes to the table's columns: rows to store as a whole, deletes as the columns of key and sequence.

A conversion is computed once for the columns that arrive, and applied to every batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.change_order import KeyNames
from lakesink.rows.changed_rows import ChangedRows, RowBatch
from lakesink.rows.columns import Alignment, NameRule, align, alignment_of
from lakesink.rows.letters import Fault, Told, json_lines
from lakesink.rows.lines import LineEncoder
from lakesink.rows.nested import nulls_of
from lakesink.rows.plan import DELETED, ChangesPlan, WritePlan
from lakesink.rows.scalars import TRUE, operation_scalar
from lakesink.rows.schema import Struct
from lakesink.rows.task_errors import schema_mismatch, shown
from lakesink.rows.unfit import nulls_in
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.row_changes import Operation


@dataclass(frozen=True, slots=True)
class FittedChanges:
    """Changes as the table's columns.

    Attributes:
        stored: Those with rows to store.
        deletes: The others, as the columns of key and sequence.
        logged: All, for a changelog; empty without one.
    """

    stored: ChangedRows | None
    deletes: ChangedRows | None
    logged: Sequence[ChangedRows]

    @property
    def rows(self) -> pa.RecordBatch | None:
        """The rows to store."""
        return None if self.stored is None else self.stored.rows


@dataclass(frozen=True, slots=True)
class ChangeConversion:
    """The conversion of changes whose rows have one schema.

    Attributes:
        incoming: That schema.
        stored_columns: Names of its columns that are stored.
        keys: Names of its columns of the key, and `sequence` of those of the sequence.
        whole: For rows to store.
        narrow: For hard deletes.
        logged: For deletes in a changelog, with all their columns; None without one.
        are_replayed: True if upserts are like rows of a snapshot, see `ChangesPlan`.
    """

    incoming: pa.Schema
    stored_columns: tuple[str, ...]
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    whole: Alignment
    narrow: Alignment
    soft_deletes: bool
    logged: Alignment | None
    are_replayed: bool

    def _check(self, changed: ChangedRows, first_row: int) -> None:
        """Raise WriteError if key or sequence is NULL in a change; `first_row` rows of the task came before."""
        for code, names in (("KEY_NULL", self.keys), ("SEQUENCE_NULL", self.sequence)):
            for name in names:
                nulls = nulls_of(changed.rows.column(name))
                if nulls.true_count:
                    rows, where = counted(nulls.true_count, "row"), first_place(changed, nulls, first_row)
                    raise WriteError.of(code, column=shown(name), rows=rows, where=where)

    def unfit(self, batch: RowBatch) -> dict[int, Fault]:
        """The changes that have NULL where none is allowed; a hard delete needs only key and sequence."""
        deletes = pc.equal(batch.operations, operation_scalar(Operation.DELETE))
        names = [name for at in self.whole.required if (name := self.whole.incoming.names[at]) != DELETED]
        of_rows = nulls_in(batch.rows, names)
        return {
            **{at: fault for at, fault in of_rows if self.soft_deletes or not deletes[at].as_py()},
            **dict(nulls_in(batch.rows, self.sequence, "SEQUENCE_NULL")),
            **dict(nulls_in(batch.rows, self.keys, "KEY_NULL")),
        }

    def fitted(self, batch: RowBatch, first_row: int) -> "FittedChanges":
        """The changes as the table's columns; raises WriteError if one does not fit."""
        changed = batch.changed
        self._check(changed, first_row)
        is_delete = pc.equal(changed.operations, operation_scalar(Operation.DELETE))
        if self.are_replayed:
            kinds = pc.if_else(is_delete, changed.operations, operation_scalar(Operation.SNAPSHOT))
            changed = replace(changed, operations=kinds)
        if self.soft_deletes:  # each change has a row to store
            rows = changed.rows.select(self.stored_columns).append_column(DELETED, is_delete)
            every = replace(changed, rows=self.whole.apply(rows))
            kept = pc.if_else(is_delete, operation_scalar(Operation.UPSERT), changed.operations)
            return FittedChanges(replace(every, operations=kept), None, [] if self.logged is None else [every])
        upserts, deletes = _only(changed, pc.invert(is_delete)), _only(changed, is_delete)
        stored, narrow, logged = None, None, list[ChangedRows]()
        if upserts is not None:
            stored = replace(upserts, rows=self.whole.apply(upserts.rows.select(self.stored_columns)))
            logged.append(stored)
        if deletes is not None:
            narrow = replace(deletes, rows=self.narrow.apply(deletes.rows))
        if deletes is not None and self.logged is not None:
            logged.append(replace(deletes, rows=self.logged.apply(deletes.rows.select(self.stored_columns))))
        return FittedChanges(stored, narrow, logged if self.logged is not None else [])


UNKNOWN = "unknown"
"""The operation of a dead letter that is a change of an unknown kind."""


@dataclass(frozen=True, slots=True)
class ChangeIdentity:
    """Says which change of a row a dead letter is: its operation, and its columns of key and sequence as JSON."""

    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    rule: NameRule

    def told(self, rows: RowBatch, chosen: Sequence[int]) -> Told:
        """Columns of the letters of some rows. The rows may lack values that could not be read, or whole columns."""
        if rows.operations is None:
            return {"operation": [UNKNOWN] * len(chosen)}
        some = rows.rows.take(pa.array(chosen, pa.int64()))
        numbers = rows.operations.take(pa.array(chosen, pa.int64())).to_pylist()
        operations = [UNKNOWN if number is None else Operation(number).name.lower() for number in numbers]
        found = {name: self._json(some, of) for name, of in (("row_key", self.keys), ("row_sequence", self.sequence))}
        return {"operation": operations, **found}

    def _json(self, rows: pa.RecordBatch, names: Sequence[str]) -> list[str | None]:
        known = {self.rule.key(name): name for name in rows.schema.names}
        columns = [known[self.rule.key(name)] for name in names if self.rule.key(name) in known]
        some = rows.select(columns)
        if not columns:
            return [None] * rows.num_rows
        nothing = reduce(pc.and_, (column.is_null() for column in some.columns)).to_pylist()
        texts = json_lines(LineEncoder(some.schema), some)
        return [None if is_nothing else text for is_nothing, text in zip(nothing, texts, strict=True)]


def key_names(schema: Struct, changes: ChangesPlan) -> KeyNames:
    """The names of the table's columns of key and sequence."""
    names = {one.field_id: one.name for one in schema.fields}
    keys, sequence = (tuple(names[one] for one in ids) for ids in (changes.keys, changes.sequence))
    return KeyNames(keys, sequence)


def own_schema(schema: Struct, changes: ChangesPlan) -> Struct:
    """The table's columns that come with the changes: lakesink itself fills the column of soft deletes."""
    if not changes.soft_deletes:
        return schema
    return Struct(tuple(one for one in schema.fields if one.name != DELETED))


def conversion_of(incoming: pa.Schema, schema: Struct, plan: WritePlan, changes: ChangesPlan) -> ChangeConversion:
    """The conversion of changes with these columns; raises WriteError if one is missing or does not fit."""
    rule, columns = NameRule(plan.case_sensitive), key_names(schema, changes)
    excepted = {rule.key(name) for name in changes.except_columns}
    stored = pa.schema([one for one in incoming if rule.key(one.name) not in excepted])
    whole = stored.append(pa.field(DELETED, pa.bool_())) if changes.soft_deletes else stored
    by_name = {one.name: one for one in schema.fields}
    narrow = Struct(tuple(by_name[name] for name in columns.names))
    stores, logged = alignment_of(whole, schema, plan), None
    if changes.has_changelog:  # what a hard delete lacks is NULL there
        optional = Struct(tuple(replace(one, required=False) for one in schema.fields))
        logged = stores if changes.soft_deletes else alignment_of(stored, optional, plan)
    return ChangeConversion(
        incoming,
        tuple(stored.names),
        _matching(stored, columns.keys, rule),
        _matching(stored, columns.sequence, rule),
        stores,
        align(incoming, narrow, replace(rule, ignore_unknown=True)),
        changes.soft_deletes,
        logged,
        changes.are_replayed,
    )


def first_place(changed: ChangedRows, found: pa.BooleanArray, first_row: int) -> str:
    """Where the first of these changes comes from, in words."""
    at = pc.index(found, TRUE).as_py()
    return changed.source_of(at) or f"row {first_row + at + 1} of its task"


def _only(changed: ChangedRows, kept: pa.BooleanArray) -> ChangedRows | None:
    if kept.true_count == len(kept):
        return changed
    return changed.filter(kept) if kept.true_count else None


def _matching(incoming: pa.Schema, names: Sequence[str], rule: NameRule) -> tuple[str, ...]:
    """The names of the table's columns as the rows have them."""
    found = {rule.key(name): name for name in incoming.names}
    for name in names:
        if rule.key(name) not in found:
            raise schema_mismatch(
                f"Column {shown(name)!r} identifies or orders the changes, and is missing in the query.",
                action="Select it in the query.",
            )
    return tuple(found[rule.key(name)] for name in names)
