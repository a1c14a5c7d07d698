"""What `schema_evolution` does where rows and table have other columns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, NestedField, StringType

from lakesink.rows.columns import NameRule, align
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import Struct, parse_schema, sql_type_of
from lakesink.rows.task_errors import schema_mismatch, shown
from lakesink.settings.ddl import columns_of
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.schema_advice import commands, difference_lines, find_change, spark_type
from lakesink.task.task import check_columns
from lakesink_catalog.commit.evolution import ChangeImpossible, evolve
from lakesink_catalog.commit.premises import Path, former_names
from lakesink_catalog.spark_types import sql_type
from lakesink_catalog.tables.arrow_schema import RESERVED_NAMES
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.errors import WriteError


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


def change_for_documents(table: Table, settings: Settings) -> SchemaChange | None:
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
            align(pa.schema([one]), Struct((present[one.name],)), NameRule(case_sensitive=True))
        except WriteError:
            kinds = shown(sql_type(one.type)), shown(sql_type_of(present[one.name].type))
            raise schema_mismatch(
                f"Column {shown(one.name)!r} is {kinds[0]} in the option schema and {kinds[1]} in the table.",
                action="Correct schema, or leave it out: an existing table keeps its columns.",
            ) from None
    return change if change != SchemaChange() else None


def allowed_change(table: Table, rows: pa.Schema, settings: Settings, *, case_sensitive: bool) -> SchemaChange | None:
    """The change that lets the table follow the rows, as far as the option allows it; None if none is needed."""
    found = _possible_change(table, rows, settings, case_sensitive=case_sensitive)
    if found.added:
        _check_are_new([one.column for one in found.added], table, NameRule(case_sensitive))
    change = found if settings.schema_evolution is SchemaEvolution.WIDEN else SchemaChange(added=found.added)
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


def with_differences(
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
