"""Plans a batch: which of its columns are stored or judged, what tasks get, and what schema the table then has."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.table import Table

from lakesink.decode.avro.registry import is_url, schemas_in_file
from lakesink.decode.documents import own_columns
from lakesink.parquet.filesystem import shareable_properties
from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.columns import NameRule
from lakesink.rows.expectations import Expected, expected_in
from lakesink.rows.plan import DELETED, JSON, ChangesPlan, NewsPlan, WritePlan
from lakesink.rows.schema import holds_binary, parse_schema
from lakesink.rows.task_errors import schema_mismatch, shown
from lakesink.settings.conditions import condition_unsupported, read_condition
from lakesink.settings.option_types import Deletes, SchemaEvolution
from lakesink.settings.options import option_invalid
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.change_plan import changes_plan, found_column
from lakesink.sinks.iceberg.evolution import allowed_change, change_for_documents, kept_types, with_differences
from lakesink.sinks.iceberg.table_layout import premises, with_order
from lakesink.task.task import check_columns, condition_on
from lakesink_catalog.commit.evolution import ChangeImpossible, evolve, keeps_columns_of
from lakesink_catalog.commit.premises import Path
from lakesink_protocol.change import SchemaChange
from lakesink_protocol.errors import BatchRefused, SettingsError, WriteError
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.quality import REPLAY


def task_plan(
    table: Table, batch: Batch, key: SinkKey, settings: Settings, *, case_sensitive: bool = False
) -> WritePlan:
    """The plan for one batch into the loaded table, under its current schema and default spec."""
    effective = settings.effective(table.properties)
    schema, spec, registry, name = table.schema(), table.spec(), settings.schema_registry, ".".join(table.name())
    for part in spec.fields:  # a `void` field of a dropped column: no Avro reader accepts PyIceberg's manifests then
        if schema.find_column_name(part.source_id) is None:
            raise BatchRefused.of("UNSUPPORTED.dropped_source", shown=shown(part.name), field=part.name, table=name)
    if settings.decode == JSON and settings.binary_encoding is None:
        _check_no_binary(table, settings.rescue_column)
    replayed, changes = key.name.startswith(REPLAY), None
    if settings.has_changes:
        changes = changes_plan(schema, name, settings, case_sensitive=case_sensitive, are_replayed=replayed)
    file_io = shareable_properties(table.io.properties)
    plan = with_order(effective.plan(table, f"{key.name}-{batch.batch_id}", batch.batch_id, file_io), table)
    return replace(
        plan,
        case_sensitive=case_sensitive,
        ignore_unknown=settings.schema_evolution is SchemaEvolution.IGNORE,
        decode=settings.decode,
        on_malformed=settings.on_malformed,
        binary_encoding=settings.binary_encoding,
        show_values=settings.show_values,
        rescue_column=settings.rescue_column,
        news=_news_plan(table, settings, changes),
        distribution_mode=effective["write.distribution-mode"],
        schema_registry=registry,
        # The driver reads a registry file; tasks query a registry service themselves.
        writer_schemas=schemas_in_file(registry) if registry and not is_url(registry) else {},
        changes=changes,
    )


def _news_plan(table: Table, settings: Settings, changes: ChangesPlan | None) -> NewsPlan | None:
    if not settings.follows_documents:
        return None
    needed = {*table.schema().identifier_field_ids, *(() if changes is None else changes.keys + changes.sequence)}
    widens = settings.schema_evolution is not SchemaEvolution.ADD
    return NewsPlan(widens, kept_types(table, settings), frozenset(needed))


def _check_no_binary(table: Table, rescue_column: str) -> None:
    """JSON has no bytes, and many texts are both Base64 and hex: a wrong guess would store other bytes."""
    for column in own_columns(parse_schema(table.schema().model_dump_json()), rescue_column).fields:
        if holds_binary(column.type):
            raise SettingsError.of(
                "OPTION_MISSING.binary_encoding", column=shown(column.name), table=shown(".".join(table.name()))
            )


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """How one batch is written.

    Attributes:
        table: The table with the batch's schema change.
        schema_change: None if the batch brings none.
    """

    table: Table
    plan: WritePlan
    schema_change: SchemaChange | None = None

    def without_keys(self, refused: Collection[Path]) -> "BatchWrite":
        """The same, without votes for these keys of documents."""
        if self.plan.news is None:
            return self
        return replace(self, plan=replace(self.plan, news=replace(self.plan.news, refused=tuple(sorted(refused)))))

    def following(self, before: Table, change: SchemaChange) -> "BatchWrite":
        """The same batch, under the schema that follows its documents too; `before` is the table without the batch.

        Raises:
            ChangeImpossible: The table cannot take the change.
        """
        whole = change if self.schema_change is None else self.schema_change.with_more(change)
        evolved = evolve(before, whole).table
        if not keeps_columns_of(self.table.schema(), evolved.schema()):
            raise ChangeImpossible("columns of the batch would get other ids")
        schema = evolved.schema()
        plan = replace(
            self.plan,
            schema_json=schema.model_dump_json(),
            schema_id=schema.schema_id,
            premises=premises(evolved, is_sorted=bool(self.plan.sort_order)),
        )
        return BatchWrite(evolved, plan, whole if whole != SchemaChange() else None)


def plan_batch(
    table: Table,
    batch: Batch,
    key: SinkKey,
    settings: Settings,
    rows: pa.Schema,
    *,
    case_sensitive: bool,
    adds_rows: bool = True,
) -> BatchWrite:
    """Plan a batch of rows of this schema, under the table's schema or the one that follows the rows.

    A batch that adds no rows, because an operator skips it, is not checked and changes no schema.

    Raises:
        WriteError: The rows do not fit the table, and the option `schema_evolution` does not allow it to follow them.
    """
    if not adds_rows:
        return BatchWrite(table, task_plan(table, batch, key, settings, case_sensitive=case_sensitive))
    try:
        change = None
        if settings.decode:
            change = change_for_documents(table, settings)
        elif settings.schema_evolution in (SchemaEvolution.ADD, SchemaEvolution.WIDEN):
            change = allowed_change(table, rows, settings, case_sensitive=case_sensitive)
        evolved = evolve(table, change).table
    except ChangeImpossible as error:
        raise schema_mismatch(
            f"The table's schema cannot follow the query: {error}.", action="Change the column in the query."
        ) from None
    plan = task_plan(evolved, batch, key, settings, case_sensitive=case_sensitive)
    try:
        check_columns(rows, plan)
    except WriteError as error:
        if settings.decode or settings.schema_evolution is SchemaEvolution.IGNORE:
            raise
        raise with_differences(error, table, rows, settings, plan) from None
    return BatchWrite(evolved, plan, change)


def expected_of(rows: pa.Schema, settings: Settings) -> tuple[Expected, ...]:
    """The expectations of rows of this schema; raises WriteError for marks that are none, or are on documents."""
    try:
        marked = expected_in(rows)
    except ValueError as error:
        raise WriteError.of("SCHEMA_MISMATCH.marks", why=str(error)) from None
    if not settings.decode:
        return marked
    if marked:
        raise WriteError.of("SCHEMA_MISMATCH.marked_documents", name=marked[0].name)
    conditions = settings.expect.items()
    return tuple(Expected(name, one.on_unmet, read_condition(name, one.condition)) for name, one in conditions)


def check_conditions(settings: Settings, plan: WritePlan) -> None:
    """Check that each condition on documents has a meaning on the table's columns; raises SettingsError."""
    if not settings.decode:
        return
    conditions = [(one.name, one.condition) for one in expected_of(pa.schema([]), settings)]
    if plan.changes is not None and plan.changes.deletes is not None:
        conditions.append(("apply_as_deletes", plan.changes.deletes))
    for name, condition in conditions:
        try:
            condition_on(plan, condition)
        except ValueError as error:
            raise condition_unsupported(name, error) from None


def stored_columns(rows: pa.Schema, settings: Settings, *, case_sensitive: bool) -> pa.Schema:
    """The columns of the rows that are stored: without the mark of deletes, and without those that are left out.

    Raises:
        SettingsError: The rows lack a column of key or sequence, or have one that soft deletes fill.
    """
    if not settings.has_changes:
        return rows
    rule = NameRule(case_sensitive)
    left_out = {DELETE_MARK, *map(rule.key, settings.except_column_list)}
    names = [name for name in rows.names if rule.key(name) not in left_out]
    if settings.deletes is Deletes.SOFT and DELETED in map(str.lower, names):
        raise option_invalid("deletes", f"The rows have a column {DELETED}, which deletes='soft' fills itself.")
    if not settings.decode:
        for option in ("keys", "sequence_by"):
            for name in getattr(settings, option):
                found_column(name, names, rule, option)
    return pa.schema([field for field in rows if field.name in names], rows.metadata)
