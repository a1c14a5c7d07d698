"""Plans a batch: what tasks get and judge, and what `schema_evolution` does where rows and table have other columns."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, NestedField, StringType

from lakesink.decode.avro.registry import is_url, schemas_in_file
from lakesink.decode.documents import own_columns
from lakesink.parquet.filesystem import shareable_properties
from lakesink.rows.columns import NameRule, align
from lakesink.rows.expectations import Expected, expected_in
from lakesink.rows.plan import JSON, ChangesPlan, NewsPlan, WritePlan
from lakesink.rows.schema import Struct, holds_binary, parse_schema, sql_type_of
from lakesink.rows.task_errors import schema_mismatch, shown
from lakesink.settings.conditions import condition_unsupported, read_condition
from lakesink.settings.ddl import columns_of
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.change_plan import changes_plan
from lakesink.sinks.iceberg.schema_advice import commands, difference_lines, find_change, spark_type
from lakesink.sinks.iceberg.table_layout import premises, with_order
from lakesink.task.task import check_columns, condition_on
from lakesink_catalog.commit.evolution import ChangeImpossible, evolve, keeps_columns_of
from lakesink_catalog.commit.premises import Path, former_names
from lakesink_catalog.spark_types import sql_type
from lakesink_catalog.tables.arrow_schema import RESERVED_NAMES
from lakesink_protocol.change import ColumnType, SchemaChange
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
    replayed = key.name.startswith(REPLAY)
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
        hash_distribution=effective["write.distribution-mode"] != "none",
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


def kept_types(table: Table, settings: Settings) -> frozenset[int]:
    """Ids of columns that documents do not make wider.

    They are the sources of partition fields, for tasks write partition values of their types, and see `kept_keys`.
    """
    return kept_keys(table, settings) | {one.source_id for one in table.spec().fields}


def kept_keys(table: Table, settings: Settings) -> frozenset[int]:
    """Ids of columns of the key of changes that keep their type: only an INT becomes wider."""
    schema = table.schema()
    keys = [schema.find_field(one) for one in schema.identifier_field_ids if settings.has_changes]
    return frozenset(one.field_id for one in keys if not isinstance(one.field_type, IntegerType))


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
        change = (
            _change_for_documents(table, settings)
            if settings.decode
            else _allowed_change(table, rows, settings, case_sensitive=case_sensitive)
        )
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
        raise _with_differences(error, table, rows, settings, plan) from None
    return BatchWrite(evolved, plan, change)


def _change_for_documents(table: Table, settings: Settings) -> SchemaChange | None:
    """The columns that options name and the table lacks; the documents' own follow later."""
    named = _named_change(table, columns_of(settings.schema), settings) if settings.schema else None
    rescue = rescue_column_change(evolve(table, named).table.schema(), settings.rescue_column)
    return rescue if named is None else named if rescue is None else named.with_more(rescue)


def _named_change(table: Table, columns: pa.Schema, settings: Settings) -> SchemaChange | None:
    """The change after which the table has the columns of the option `schema`, in types that hold their values."""
    name, policy = ".".join(table.name()), settings.schema_evolution
    found = replace(find_change(columns, table.schema(), case_sensitive=True), optional=())
    if found.added and policy not in (SchemaEvolution.ADD, SchemaEvolution.WIDEN):
        lacking = shown(", ".join(".".join(one.column) for one in found.added))
        raise WriteError.of(
            "SCHEMA_MISMATCH.named",
            table=shown(name),
            columns=lacking,
            evolution=SchemaEvolution.ADD,
            commands=commands(replace(found, widened=()), table.name()),
        )
    _check_are_new([one.column for one in found.added], table, NameRule(case_sensitive=True))
    change = found if policy is SchemaEvolution.WIDEN else replace(found, widened=())
    present = {one.name: one for one in parse_schema(evolve(table, change).table.schema().model_dump_json()).fields}
    for one in columns:
        try:
            align(pa.schema([one]), Struct((present[one.name],)), case_sensitive=True)
        except WriteError:
            kinds = shown(sql_type(one.type)), shown(sql_type_of(present[one.name].type))
            raise schema_mismatch(
                f"Column {shown(one.name)!r} is {kinds[0]} in the option schema and {kinds[1]} in the table.",
                action="Correct schema, or leave it out: an existing table keeps its columns.",
            ) from None
    return change if change != SchemaChange() else None


def _allowed_change(table: Table, rows: pa.Schema, settings: Settings, *, case_sensitive: bool) -> SchemaChange | None:
    policy = settings.schema_evolution
    if policy not in (SchemaEvolution.ADD, SchemaEvolution.WIDEN):
        return None
    found = _possible_change(table, rows, settings, case_sensitive=case_sensitive)
    if found.added:
        _check_are_new([one.column for one in found.added], table, NameRule(case_sensitive))
    change = found if policy is SchemaEvolution.WIDEN else SchemaChange(added=found.added)
    return change if change != SchemaChange() else None


def _possible_change(table: Table, rows: pa.Schema, settings: Settings, *, case_sensitive: bool) -> SchemaChange:
    """The change after which the table fits the rows, but for columns of a key that keep their type."""
    found, kept = find_change(rows, table.schema(), case_sensitive=case_sensitive), kept_keys(table, settings)
    names = {(table.schema().find_column_name(one),) for one in kept}
    return replace(found, widened=tuple(one for one in found.widened if one.column not in names))


def _check_are_new(added: Sequence[Path], table: Table, rule: NameRule) -> None:
    """A column under the former name of another one is not new: two columns would have a part of the values each."""
    for said in _renamed(added, table, rule):
        raise schema_mismatch(
            said,
            action="Rename it in the query. If it is another column, add it to the table first (Spark SQL: ALTER TABLE"
            " ... ADD COLUMN).",
        )


def _renamed(added: Sequence[Path], table: Table, rule: NameRule) -> Iterator[str]:
    """A sentence for each column of the query that another one of the table was called once."""

    def by_rule(path: Path) -> Path:
        return tuple(map(rule.key, path))

    names = {by_rule(column): now for column, now in former_names(table).items()}
    for column in added:
        if now := names.get(by_rule(column)):
            before, after = (shown(".".join(one)) for one in (column, now))
            yield f"Column {before!r} of the query was renamed to {after!r} in the table."


def _with_differences(
    error: WriteError, table: Table, rows: pa.Schema, settings: Settings, plan: WritePlan
) -> WriteError:
    """The error that columns do not fit, with all differences; and if the table can follow, with the ways to let it."""
    try:
        change = _possible_change(table, rows, settings, case_sensitive=plan.case_sensitive)
        followed = evolve(table, change).table.schema()
        check_columns(rows, replace(plan, schema_json=followed.model_dump_json(), schema_id=followed.schema_id))
    except (WriteError, ChangeImpossible):  # the table cannot follow, so the query must change
        return error
    needed = SchemaEvolution.WIDEN if change.widened or change.optional else SchemaEvolution.ADD
    renamed = _renamed([one.column for one in change.added], table, NameRule(plan.case_sensitive))
    return error.reworded(
        action=(
            *(f"{said} Rename it in the query." for said in renamed),
            *(error.choices or (error.action,)),
            f"Let the table follow the query, in the batch's own commit: schema_evolution='{needed}'.",
            *commands(change, table.name()),
        ),
        details=difference_lines(change, table.schema()),
    )


def rescue_column_change(schema: Schema, name: str) -> SchemaChange | None:
    """The change that adds the rescue column; None if the table has it, or the name is empty.

    Raises:
        WriteError: The table has another column of this name, or cannot have one.
    """
    if not name:
        return None
    present = next((field for field in schema.fields if field.name.casefold() == name.casefold()), None)
    why = _why_unusable(name, present)
    if why:
        raise schema_mismatch(
            f"The rescue column {shown(name)!r} {why}.",
            action="Give the option rescue_column a name that the table does not have, or the name of an optional"
            " column of STRING.",
        )
    return SchemaChange(added=(ColumnType((name,), '"string"'),)) if present is None else None


def _why_unusable(name: str, present: NestedField | None) -> str:
    if name.lower() in RESERVED_NAMES:
        return "has a name that Iceberg reserves"
    if present is None:
        return ""
    if present.name != name:
        return f"differs only in case from {shown(present.name)!r}, and most engines cannot distinguish them"
    if not isinstance(present.field_type, StringType):
        return f"is {spark_type(present.field_type)} in the table, and must be STRING"
    return "is required in the table, and must be optional" if present.required else ""


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
