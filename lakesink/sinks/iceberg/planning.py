"""Builds the plan for the executors from a table and the options."""

from pyiceberg.table import Table

from lakesink.decode.avro.registry import is_url, schemas_in_file
from lakesink.decode.documents import own_columns
from lakesink.parquet.filesystem import shareable_properties
from lakesink.rows.plan import JSON, NewsPlan, PartitionField, WritePlan
from lakesink.rows.schema import holds_binary, parse_schema
from lakesink.rows.task_errors import shown
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.change_plan import changes_plan
from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.tables.locations import data_location
from lakesink_protocol.errors import BatchRefused, SettingsError
from lakesink_protocol.identity import Batch, SinkKey


def write_plan(
    table: Table, batch: Batch, key: SinkKey, settings: Settings, *, case_sensitive: bool = False
) -> WritePlan:
    """The plan for one batch into the loaded table, under its current schema and default spec."""
    effective = settings.effective(table.properties)
    schema, spec, registry = table.schema(), table.spec(), settings.schema_registry
    for field in spec.fields:  # a `void` field of a dropped column: no Avro reader accepts PyIceberg's manifests then
        if schema.find_column_name(field.source_id) is None:
            name = ".".join(table.name())
            raise BatchRefused.of("UNSUPPORTED.dropped_source", shown=shown(field.name), field=field.name, table=name)
    if settings.decode == JSON and settings.binary_encoding is None:
        _check_no_binary(table, settings.rescue_column)
    return WritePlan(
        schema_json=schema.model_dump_json(),
        schema_id=schema.schema_id,
        spec_id=spec.spec_id,
        partition_fields=tuple(
            PartitionField(part.source_id, part.field_id, part.name, str(part.transform)) for part in spec.fields
        ),
        data_location=data_location(table),
        file_stem=f"{key.name}-{batch.batch_id}",
        batch_id=batch.batch_id,
        premises=Premises(schema, (spec,)).digest,
        object_storage=effective.object_storage,
        partitioned_paths=effective.partitioned_paths,
        file_io=shareable_properties(table.io.properties),
        catalog_name=table.catalog.name,
        case_sensitive=case_sensitive,
        ignore_unknown=settings.schema_evolution is SchemaEvolution.IGNORE,
        target_file_size_bytes=effective.target_file_size_bytes,
        parquet=effective.parquet,
        metrics_modes=effective.metrics_modes(schema),
        decode=settings.decode,
        on_malformed=settings.on_malformed,
        binary_encoding=settings.binary_encoding,
        show_values=settings.show_values,
        rescue_column=settings.rescue_column,
        news=_news_plan(table, settings),
        hash_distribution=effective.distribution_mode != "none",
        schema_registry=registry,
        # The driver reads a registry file; tasks query a registry service themselves.
        writer_schemas=schemas_in_file(registry) if registry and not is_url(registry) else {},
        changes=changes_plan(schema, ".".join(table.name()), settings, case_sensitive=case_sensitive),
    )


def _news_plan(table: Table, settings: Settings) -> NewsPlan | None:
    if not settings.follows_documents:
        return None
    widens = settings.schema_evolution is not SchemaEvolution.ADD
    sources = frozenset(one.source_id for one in table.spec().fields)  # tasks write partition values of their types
    return NewsPlan(widens, sources, frozenset(table.schema().identifier_field_ids))


def _check_no_binary(table: Table, rescue_column: str) -> None:
    """JSON has no bytes, and many texts are both Base64 and hex: a wrong guess would store other bytes."""
    for column in own_columns(parse_schema(table.schema().model_dump_json()), rescue_column).fields:
        if holds_binary(column.type):
            raise SettingsError.of(
                "OPTION_MISSING.binary_encoding", column=shown(column.name), table=shown(".".join(table.name()))
            )
