"""Chooses the reader of change events by their format."""

from lakesink.decode.debezium.envelopes import EventColumns, EventReader
from lakesink.decode.debezium.json_events import JsonEvents
from lakesink.decode.unknown_keys import UnknownKeys
from lakesink.rows.plan import DEBEZIUM_JSON, WritePlan
from lakesink.rows.task_errors import decoder_missing


def reader_of(plan: WritePlan, columns: EventColumns, unknown: UnknownKeys) -> EventReader:
    """The reader for one task; raises `WriteError` if a library is missing."""
    if plan.decode == DEBEZIUM_JSON:
        return JsonEvents(columns, unknown, plan.binary_encoding)
    try:
        from lakesink.decode.avro.registry import schemas_of  # an optional dependency, for Avro only
        from lakesink.decode.debezium.avro_events import AvroEvents
    except ModuleNotFoundError:
        raise decoder_missing("numpy") from None
    schemas = schemas_of(plan.schema_registry, plan.writer_schemas, connect_names=True)
    return AvroEvents(columns, schemas, unknown, plan.binary_encoding)
