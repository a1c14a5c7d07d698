"""Rows that bear documents, as Kafka delivers them, become the table's rows: as many as came in.

The column ``value`` holds the document. Where the table has columns of the names in `KAFKA_COLUMNS`, they are filled
from Kafka's own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.writer.json_scalars import Parsed, either, without
from lakesink.writer.json_values import JsonReader
from lakesink.writer.plan import JSON, OnMalformed, WritePlan
from lakesink.writer.refusals import decoder_missing, malformed_value, schema_mismatch, shown
from lakesink.writer.schema import Struct
from lakesink_catalog.spark_types import sql_type

VALUE = "value"
KAFKA_COLUMNS: Mapping[str, str] = {
    "_kafka_partition": "partition",
    "_kafka_offset": "offset",
    "_kafka_timestamp": "timestamp",
    "_kafka_key": "key",
}
"""Columns of the table by Kafka's."""
INCOMING = (VALUE, *KAFKA_COLUMNS.values())
"""Columns of the rows that are looked at; others, such as Kafka's topic, are not."""

GATHERED_BYTES = 16 * 1024 * 1024


class DocumentReader(Protocol):
    """Reads documents of one format for one task."""

    def documents(self, values: pa.Array, kind: Struct) -> Parsed:
        """A table's columns from documents, one row for each."""

    def told(self, value: bytes | None) -> list[str]:
        """What may be said of a malformed document besides where it is."""


@dataclass(slots=True)
class Decoder:
    """Decodes one task's batches.

    Attributes:
        plan: What the driver decided.
        schema: The table's.
        malformed: Documents that became rows of NULLs.
    """

    plan: WritePlan
    schema: Struct
    malformed: int = 0
    _reader: DocumentReader = field(init=False)
    _seen: int = 0

    def __post_init__(self) -> None:
        self._reader = _reader_for(self.plan)

    def decoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The table's rows, one for each row of the batches, in their order.

        Raises:
            WriteError: A document does not fit the table exactly, and that is to fail.
        """
        return map(self._decode, _gathered(batches))

    def _decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        parsed = self._parsed(batch.column(VALUE))
        if parsed.misfits is not None:
            self._count(parsed.misfits, batch)
        self._seen += batch.num_rows
        arrays = dict(zip(_own_names(self.schema), parsed.values.flatten(), strict=True))
        arrays |= {name: batch.column(theirs) for name, theirs in _asked_of_kafka(self.schema).items()}
        names = [field.name for field in self.schema.fields]
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], names=names)

    def _parsed(self, documents: pa.Array) -> Parsed:
        """No document, a blank one and one that is no object are malformed too: no row vanishes."""
        parsed = self._reader.documents(documents, own_columns(self.schema))
        misfits = either(parsed.misfits, parsed.values.is_null() if parsed.values.null_count else None)
        if misfits is None:
            return parsed
        return Parsed(without(parsed.values, misfits), misfits)

    def _count(self, misfits: pa.BooleanArray, batch: pa.RecordBatch) -> None:
        if self.plan.on_malformed is OnMalformed.FAIL:
            raise malformed_value(self._place(batch, pc.index(misfits, value=True).as_py()))
        self.malformed += pc.sum(misfits).as_py()

    def _place(self, batch: pa.RecordBatch, position: int) -> str:
        from_kafka = [name for name in ("partition", "offset") if name in batch.schema.names]
        told = [f"{name} {batch.column(name)[position]}" for name in from_kafka]
        told += self._reader.told(batch.column(VALUE)[position].as_py())
        return ", ".join([f"row {self._seen + position} of its task", *told])


def _reader_for(plan: WritePlan) -> DocumentReader:
    if plan.decode == JSON:
        return JsonReader()
    try:
        from lakesink.writer.avro.messages import MessageReader  # noqa: PLC0415 - an extra: only who decodes Avro needs it
        from lakesink.writer.avro.registry import schemas_of  # noqa: PLC0415 - with it
    except ModuleNotFoundError:
        raise decoder_missing("numpy") from None
    return MessageReader(schemas_of(plan.schema_registry, plan.writer_schemas))


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fewer and larger batches: each one costs milliseconds, however small."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= GATHERED_BYTES:
            yield pa.concat_batches(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def own_columns(schema: Struct) -> Struct:
    """The columns that come from the documents."""
    return Struct(tuple(field for field in schema.fields if field.name not in KAFKA_COLUMNS))


def check_documents(incoming: pa.Schema, schema: Struct, decode: str) -> None:
    """Find out before a job whether rows of this schema can be decoded into the table's columns.

    Args:
        incoming: The rows'.
        schema: The table's.
        decode: The documents' format.

    Raises:
        WriteError: `SCHEMA_MISMATCH`.
    """
    value = incoming.field(VALUE).type if VALUE in incoming.names else None
    kinds = {pa.binary(): "BINARY", pa.string(): "STRING"} if decode == JSON else {pa.binary(): "BINARY"}
    if value not in kinds:
        found = "none" if value is None else shown(sql_type(value))
        raise schema_mismatch(
            f"Rows to decode have a column {VALUE!r} of {' or '.join(kinds.values())}; these have {found}.",
            action=f"Name the documents {VALUE!r}, as Kafka does: df.select(col('payload').alias('value')).",
        )
    if not own_columns(schema).fields:
        raise schema_mismatch(
            "The table has columns for what Kafka says of a record, and none for what a document holds.",
            action="Add the documents' columns to the table, or write Kafka's without decode.",
        )
    missing = [theirs for theirs in _asked_of_kafka(schema).values() if theirs not in incoming.names]
    if missing:
        raise schema_mismatch(
            f"The table has a column for Kafka's {missing[0]!r}, which the rows do not have.",
            action="Keep the column of Kafka's source in the query, or drop the table's column.",
        )


def _own_names(schema: Struct) -> list[str]:
    return [field.name for field in own_columns(schema).fields]


def _asked_of_kafka(schema: Struct) -> dict[str, str]:
    return {field.name: KAFKA_COLUMNS[field.name] for field in schema.fields if field.name in KAFKA_COLUMNS}
