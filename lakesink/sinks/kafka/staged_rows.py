"""Writes one task's rows as records for Kafka into staged parts: the Kafka sink's pre-commit in executors.

The receipt of a task has its staged parts, and what the topics must accept. It comes from a less trusted process than
the driver: `decode_kafka` accepts this form only.

The columns are those of Spark's Kafka sink: `value`, and if wanted `key`, `headers`, `topic` and `partition`. Every
rule that a row can break is checked here, so that nothing is sent for a batch with such a row. No Kafka client is
needed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.task_errors import shown
from lakesink.sinks.staged.part_receipt import PartsReceipt, decode_parts, read_receipt
from lakesink.sinks.staged.parts import PartsWriter
from lakesink_catalog.spark_types import sql_type
from lakesink_protocol.errors import WriteError
from lakesink_protocol.receipt_json import ReceiptInvalid

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
}
"""The columns, and their types in a part."""
SPARK_TYPES = {
    "key": "STRING or BINARY",
    "value": "STRING or BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "topic": "STRING",
    "partition": "INT",
}
RECORD_BYTES, HEADER_BYTES = 128, 16
"""Room for Kafka's own fields of a batch with one record, and of a header: more than they ever take."""
_STRINGS, _BINARIES = (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())
KAFKA_RECEIPT_VERSION = 1
LONGEST_TOPIC = 249
_NUMBERS = range(-1, 2**63)


@dataclass(frozen=True, slots=True)
class Needs:
    """What the rows of a batch need of one topic: room for the largest record, and the highest partition they name.

    `partition` is -1 if no row names one.
    """

    record_bytes: int
    partition: int


def encode_kafka(parts: bytes, needs: Mapping[str, Needs]) -> bytes:
    """The receipt as JSON; `parts` is the encoded receipt of the parts."""
    topics = {topic: [found.record_bytes, found.partition] for topic, found in needs.items()}
    document = {"v": KAFKA_RECEIPT_VERSION, "parts": parts.decode(), "topics": topics}
    return json.dumps(document, separators=(",", ":")).encode()


def decode_kafka(data: bytes, stem: str) -> tuple[PartsReceipt, dict[str, Needs]]:
    """Staged parts and needs by topic; raises ReceiptInvalid unless they are of this batch and version, and bounded."""

    def read(document: Mapping[str, Any]) -> tuple[PartsReceipt, dict[str, Needs]]:
        needs = dict(starmap(_needs, document["topics"].items()))
        return decode_parts(document["parts"].encode(), stem), needs

    return read_receipt(data, KAFKA_RECEIPT_VERSION, read)


def needs_of_all(several: Iterable[Mapping[str, Needs]]) -> dict[str, Needs]:
    """What several tasks or rows need together, by topic."""
    found: dict[str, Needs] = {}
    for topic, needs in (one for some in several for one in some.items()):
        other = found.get(topic, needs)
        found[topic] = Needs(max(needs.record_bytes, other.record_bytes), max(needs.partition, other.partition))
    return found


def _needs(topic: str, numbers: Any) -> tuple[str, Needs]:
    if not 0 < len(topic) <= LONGEST_TOPIC:
        raise ReceiptInvalid("the name of a topic is empty or too long")
    match numbers:
        case [int(record_bytes), int(partition)] if record_bytes in _NUMBERS and partition in _NUMBERS:
            return topic, Needs(record_bytes, partition)
    raise ReceiptInvalid("a count is not an integer in its range")


@dataclass(frozen=True, slots=True)
class RecordsWriter:
    """Writes one task's rows; see `lakesink_protocol.two_phase.TaskWriter`.

    Attributes:
        parts: Writes the staged parts.
        topic: The topic of all rows; empty if each row names its own.
        most_bytes: The largest record that producer and topic take.
    """

    parts: PartsWriter
    topic: str
    most_bytes: int

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows and return its encoded receipt."""
        records = _Records(self.topic, self.most_bytes, self.parts.batch_id)
        staged = self.parts.write(task, map(records.taken, batches))
        return encode_kafka(staged, records.needs)


@dataclass(slots=True)
class _Records:
    """Turns rows into records of the columns above, and adds up what they need."""

    topic: str
    most_bytes: int
    batch_id: int
    needs: dict[str, Needs] = field(default_factory=dict, init=False)

    def taken(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as records."""
        records = as_records(rows, self.topic)
        if records.num_rows:
            self._check(records)
        return records

    def _check(self, records: pa.RecordBatch) -> None:
        headers = _column(records, "headers", HEADERS).flatten()
        if headers.null_count or headers.field("key").null_count:
            raise _row_refused("it has a header without a key", self.batch_id)
        if _has_nul(headers.field("key")):
            raise _row_refused("it has a header whose key contains the character NUL", self.batch_id)
        sizes = record_sizes(records)
        largest = pc.max(sizes).as_py()
        if largest > self.most_bytes:
            raise WriteError.of("KAFKA_RECORD_TOO_LARGE", batch_id=self.batch_id, size=largest, most=self.most_bytes)
        partitions = _column(records, "partition", pa.int32())
        if (pc.min(partitions).as_py() or 0) < 0:
            raise _row_refused("it has a negative partition", self.batch_id)
        topics = _column(records, "topic", pa.string())
        if not self.topic and topics.null_count:
            raise _row_refused("it has no topic", self.batch_id)
        if _has_nul(topics):
            raise _row_refused("it has a topic whose name contains the character NUL", self.batch_id)
        partitions = pc.fill_null(partitions, -1)
        needs = {self.topic: Needs(largest, pc.max(partitions).as_py())}
        if not self.topic:
            rows = pa.table({"topic": topics, "bytes": sizes, "partition": partitions})
            found = rows.group_by("topic").aggregate([("bytes", "max"), ("partition", "max")]).to_pylist()
            needs = {row["topic"]: Needs(row["bytes_max"], row["partition_max"]) for row in found}
        if not all(0 < len(topic) <= LONGEST_TOPIC for topic in needs):
            raise _row_refused("it has a topic whose name is empty or too long", self.batch_id)
        self.needs = needs_of_all([self.needs, needs])


def as_records(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """The rows with the columns of a record, in their types; the column `topic` counts only without a fixed topic."""
    check_columns(rows.schema, topic)
    names = [name for name in COLUMNS if name in rows.schema.names and not (topic and name == "topic")]
    columns = [rows.column(name).cast(COLUMNS[name]) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)


def check_columns(schema: pa.Schema, topic: str) -> None:
    """Refuse rows that are not records, by their columns."""
    unknown = [name for name in schema.names if name not in COLUMNS]
    if unknown:
        raise _columns(f"column {shown(unknown[0])!r} is none of a Kafka record: it would not be sent")
    if "value" not in schema.names:
        raise _columns("there is no column 'value'")
    if not topic and "topic" not in schema.names:
        raise _columns("there is no column 'topic', and the sink has no topic")
    for part in schema:
        if not _is_type_of(part.name, part.type):
            told = shown(sql_type(part.type))
            raise _columns(f"column {part.name!r} is {told}, expected {SPARK_TYPES[part.name]}")


def record_sizes(records: pa.RecordBatch) -> pa.Array:
    """An upper bound of the size of each record, uncompressed and alone in its batch."""
    sizes = pc.fill_null(pc.binary_length(records.column("value")), 0)
    if "key" in records.schema.names:
        sizes = pc.add(sizes, pc.fill_null(pc.binary_length(records.column("key")), 0))
    if "headers" in records.schema.names:
        of_headers = (
            sum(HEADER_BYTES + len(header["key"].encode()) + len(header["value"] or b"") for header in headers or ())
            for headers in records.column("headers").to_pylist()
        )
        sizes = pc.add(sizes, pa.array(of_headers, pa.int32()))
    return pc.add(pc.cast(sizes, pa.int64()), RECORD_BYTES)


def _has_nul(texts: pa.Array) -> bool:
    """The client takes these texts as strings of C: it would send such a text only up to its first NUL."""
    return bool(pc.any(pc.match_substring(texts, "\0")).as_py())


def _is_type_of(name: str, kind: pa.DataType) -> bool:
    if name in ("key", "value"):
        return kind in _STRINGS + _BINARIES
    if name == "partition":
        return bool(pa.types.is_int32(kind))
    if name == "topic":
        return kind in _STRINGS
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    parts = [(part.name, part.type) for part in kind.value_type]
    return parts in ([("key", key), ("value", value)] for key in _STRINGS for value in _BINARIES)


def _column(records: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    return records.column(name) if name in records.schema.names else pa.nulls(records.num_rows, kind)


def _columns(why: str) -> WriteError:
    return WriteError.of("KAFKA_COLUMNS", why=why)


def _row_refused(why: str, batch_id: int) -> WriteError:
    return WriteError.of("KAFKA_ROW_REFUSED", batch_id=batch_id, why=why)
