"""Checks a target before a stream starts, and creates a table for its rows. Changes no table that exists."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata

from lakesink.rows.expectations import Expected
from lakesink.rows.letters import LETTERS
from lakesink.rows.plan import ChangesPlan, WritePlan
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import check_conditions, plan_batch, task_plan
from lakesink.sinks.iceberg.change_plan import check_created_keys, check_no_equality_deletes, created_schema
from lakesink.sinks.iceberg.side.changelog_table import CHANGELOG, changelog_columns, check_changelog_name, check_filled
from lakesink.sinks.iceberg.side.letters_table import DEAD_LETTERS, letters_table, puts_aside
from lakesink.sinks.iceberg.side.side_table import SideTable, side_plan
from lakesink.sinks.iceberg.table_layout import check_partitions, check_sort_by
from lakesink.sinks.iceberg.upkeep.seen import partitions_where
from lakesink_catalog.commit.decision import check_has_head
from lakesink_catalog.commit.left_out import check_keeps_refs
from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_catalog.spark_types import sql_name
from lakesink_catalog.tables.arrow_schema import iceberg_schema, with_identifier_fields
from lakesink_catalog.tables.partition_by import parse_partition_by, parse_sort_by, parse_sort_terms, parse_terms
from lakesink_catalog.tables.tables import FORMAT_VERSION, TABLE_MISSING, create_table, load_table, parse_identifier
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import BatchRefused, CatalogError, LakesinkError, SettingsError, WriteError
from lakesink_protocol.identity import MAIN_BRANCH, Batch, SinkKey
from lakesink_protocol.suggest import did_you_mean

CATALOG_MISSING = "LAKESINK_CATALOG_MISSING"
_PROBE = Batch(0, "", "", None, "")


def open_existing(found: FoundCatalog, table: str) -> Catalog:
    """Connect for a writer that needs an existing table: no catalog is created."""
    try:
        return found.open(create=False)
    except CatalogError as error:
        raise explain_missing(error, table) from None


def check_start(
    found: FoundCatalog, table: str, key: SinkKey, settings: Settings, schema: pa.Schema, *, case_sensitive: bool
) -> None:
    """Check options, columns and table as the first batch does, with the same errors."""
    parse_identifier(table)
    target = _existing_table(found, table, may_lack=settings.create_table)
    if target is None:
        target = _table_to_be(table, check_creation(table, key, settings, schema), settings)
    else:
        for option, asked in (("branch", key.branch != MAIN_BRANCH), ("tag_every", settings.tag_every is not None)):
            if asked:
                check_keeps_refs(option, target.catalog.properties)
        if str(target.format_version) != FORMAT_VERSION:
            raise BatchRefused.of("UNSUPPORTED", table=table, format_version=target.format_version)
        if key.branch != MAIN_BRANCH and key.branch not in target.metadata.refs:
            near = did_you_mean(key.branch, list(target.metadata.refs))
            raise BatchRefused.of("BRANCH_MISSING", branch=key.branch[:60], table=table, near=near)
        check_has_head(target, key.branch)
        check_partitions(target, settings.partition_by)
        check_sort_by(target, settings.sort_by)
        if settings.has_changes:
            check_no_equality_deletes(target, key.branch)
    partitions_where(target, (settings.maintenance or {}).get("where", ""))
    plan = _planned(target, key, settings, schema, case_sensitive=case_sensitive)
    _check_changelog(found, table, key, settings, plan.schema_json, plan.changes)


def check_letters(
    found: FoundCatalog, table: str, key: SinkKey, settings: Settings, expected: Sequence[Expected]
) -> None:
    """Check the table for rows that are put aside, if there is one already."""
    if puts_aside(settings, expected):
        _check_side_table(found, DEAD_LETTERS, letters_table(table, settings), key, LETTERS)


def plan_in_front(key: SinkKey, settings: Settings, rows: pa.Schema, *, case_sensitive: bool) -> WritePlan:
    """How tasks check rows for a target that is no table; documents get the columns of the option `schema`."""
    if not settings.decode:
        return task_plan(_table_to_be("no.table", Schema(), settings), _PROBE, key, settings)
    no_table = _table_to_be("option.schema", created_schema(rows, settings), settings)
    return _planned(no_table, key, settings, rows, case_sensitive=case_sensitive)


def _planned(target: Table, key: SinkKey, settings: Settings, schema: pa.Schema, *, case_sensitive: bool) -> WritePlan:
    """The plan of a batch before any batch exists."""
    try:
        plan = plan_batch(target, _PROBE, key, settings, schema, case_sensitive=case_sensitive).plan
    except WriteError as error:  # a task's refusal
        raise error.reworded(data=DataState.UNCHANGED) from None
    check_conditions(settings, plan)
    return plan


def _check_changelog(
    found: FoundCatalog, table: str, key: SinkKey, settings: Settings, schema_json: str, changes: ChangesPlan | None
) -> None:
    if settings.changelog_table is None or changes is None:
        return
    check_changelog_name(table, settings.changelog_table)
    columns = changelog_columns(schema_json, changes, table)
    iceberg_schema(columns)  # raises an error if no table can have them
    plan = _check_side_table(found, CHANGELOG, settings.changelog_table, key, columns)
    if plan is not None:
        check_filled(settings.changelog_table, plan.schema_json, columns)


def _check_side_table(
    found: FoundCatalog, kind: SideTable, name: str, key: SinkKey, columns: pa.Schema
) -> WritePlan | None:
    """Check the table and plan for it, if there is one already. The options of the rows are not its."""
    existing = _existing_table(found, name, may_lack=True)
    if existing is None:
        return None
    check_has_head(existing, MAIN_BRANCH)
    settings = replace(Settings(), schema_evolution=kind.schema_evolution)
    return side_plan(kind, existing, _PROBE, key, settings, columns).plan


def check_creation(table: str, key: SinkKey, settings: Settings, schema: pa.Schema) -> Schema:
    """Check that a table can be created for these rows and written with these options; returns its schema."""
    if settings.decode and not settings.schema:
        _check_documents_name_columns(table, settings)
    created = created_schema(schema, settings)
    check_created_keys(created, table, settings)
    parse_partition_by(settings.partition_by, created)
    parse_sort_by(settings.sort_by, created)
    settings.effective({})
    if key.branch != MAIN_BRANCH:
        raise BatchRefused.of("BRANCH_MISSING.new_table", branch=key.branch[:60], table=table)
    return with_identifier_fields(created, settings.keys)


def create_for_rows(catalog: Catalog, table: str, key: SinkKey, settings: Settings, schema: pa.Schema) -> Table:
    """Create the table for rows with these columns."""
    created = check_creation(table, key, settings, schema)
    return create_table(catalog, table, created, settings.partition_by, sort_by=settings.sort_by)


def explain_missing(error: CatalogError, table: str) -> LakesinkError:
    """Name the most likely cause first: at a first start, a missing catalog or table was never created."""
    if error.code not in (CATALOG_MISSING, TABLE_MISSING):
        return error
    return error.reworded(
        what=f"There is no table {table} yet. {error.what}" if error.code == CATALOG_MISSING else None,
        action=("At a first start, set create_table=True (with decode also schema or schema_evolution).", error.action),
    )


def _existing_table(found: FoundCatalog, table: str, *, may_lack: bool) -> Table | None:
    try:
        return load_table(found.open(create=False), table)
    except CatalogError as error:
        if may_lack and error.code in (CATALOG_MISSING, TABLE_MISSING):
            return None
        raise explain_missing(error, table) from None


def _check_documents_name_columns(table: str, settings: Settings) -> None:
    """Check that documents may name all columns: those that other options name must be there before them."""
    named = [name for name in ("keys", "sequence_by", "partition_by", "sort_by") if getattr(settings, name)]
    evolves = settings.schema_evolution in (SchemaEvolution.ADD, SchemaEvolution.WIDEN)
    if evolves and not named:
        return
    partition_by = settings.partition_by or ""
    terms = (*(parse_terms(partition_by) if partition_by.strip() else ()), *parse_sort_terms(settings.sort_by))
    columns = dict.fromkeys([*settings.keys, *settings.sequence_by, *(term.column[0] for term in terms)])
    example = ", ".join(f"{sql_name(name)} ..." for name in columns) or "id BIGINT NOT NULL, at TIMESTAMP"
    why = f"the option {named[0]} needs them in schema" if evolves else "documents have no schema"
    with_schema = f", with those of {' and '.join(named)} in schema" if named else ""
    also = None if evolves else with_schema
    raise SettingsError.of("OPTION_MISSING.columns", table=table, why=why, example=example, with_schema=also)


def _table_to_be(name: str, schema: Schema, settings: Settings) -> Table:
    """A table like the one that the first batch creates, in no catalog."""
    spec, order = parse_partition_by(settings.partition_by, schema), parse_sort_by(settings.sort_by, schema)
    properties = {"format-version": FORMAT_VERSION}
    metadata = new_table_metadata(schema, spec, order, "file:///nowhere", properties)
    return Table(parse_identifier(name), metadata, "", load_file_io({}), NoopCatalog(""))
