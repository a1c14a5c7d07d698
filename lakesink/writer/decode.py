"""Rows that bear documents, as Kafka delivers them, become the table's rows: as many as came in.

The column ``value`` holds the document. Where the table has columns of the names in `KAFKA_COLUMNS`, they are filled
from Kafka's own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.writer.json_scalars import Parsed, converted, either, without
from lakesink.writer.json_values import JsonReader
from lakesink.writer.plan import OnMalformed, WritePlan
from lakesink.writer.refusals import malformed_value, schema_mismatch, shown
from lakesink.writer.schema import Field, ListOf, MapOf, Struct, Type

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
    _reader: JsonReader = field(default_factory=JsonReader)
    _seen: int = 0

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
        texts = converted(documents, lambda values: pc.cast(values, pa.string()))
        parsed = self._reader.read(texts.values, own_columns(self.schema))
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
        return ", ".join([f"row {self._seen + position} of its task", *told])


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


def check_documents(incoming: pa.Schema, schema: Struct) -> None:
    """Find out before a job whether rows of this schema can be decoded into the table's columns.

    Raises:
        WriteError: `SCHEMA_MISMATCH`.
    """
    value = incoming.field(VALUE).type if VALUE in incoming.names else None
    if value not in (pa.binary(), pa.string()):
        raise schema_mismatch(
            f"Rows to decode have a column {VALUE!r} of binary or text; these have {shown(str(value))}.",
            action=f"Name the documents {VALUE!r}, as Kafka does: df.select(col('payload').alias('value')).",
        )
    missing = [theirs for theirs in _asked_of_kafka(schema).values() if theirs not in incoming.names]
    if missing:
        raise schema_mismatch(
            f"The table has a column for Kafka's {missing[0]!r}, which the rows do not have.",
            action="Keep the column of Kafka's source in the query, or drop the table's column.",
        )
    _check_names(own_columns(schema))


def _check_names(kind: Type) -> None:
    """What decodes JSON takes names that differ in case only for one."""
    match kind:
        case Struct(fields):
            names = [field.name.lower() for field in fields]
            if len(set(names)) != len(names):
                raise schema_mismatch(
                    "Columns of the table differ in case only, which cannot be decoded.", action="Rename one of them."
                )
            _check_below(*fields)
        case ListOf(element):
            _check_below(element)
        case MapOf(key, value):
            _check_below(key, value)


def _check_below(*fields: Field) -> None:
    for below in fields:
        _check_names(below.type)


def _own_names(schema: Struct) -> list[str]:
    return [field.name for field in own_columns(schema).fields]


def _asked_of_kafka(schema: Struct) -> dict[str, str]:
    return {field.name: KAFKA_COLUMNS[field.name] for field in schema.fields if field.name in KAFKA_COLUMNS}
