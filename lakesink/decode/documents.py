"""Decodes rows that contain documents, for example from Kafka, to the table's rows: exactly one for each row.

The column ``value`` contains the document. Table columns with names in `KAFKA_COLUMNS` get Kafka's values.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_scalars import Parsed, but, either
from lakesink.decode.json_values import JsonReader, load_duckdb, load_unknown_keys
from lakesink.decode.misfits import PLACES, Found, Places, UnknownKeys
from lakesink.decode.news_rows import Find, NewsRows, ReadsDocuments
from lakesink.decode.rescue import Rescue
from lakesink.rows.batches import joined
from lakesink.rows.casts import lossless_cast
from lakesink.rows.changed_rows import RowBatch, positions_in
from lakesink.rows.letters import Fault
from lakesink.rows.plan import DEBEZIUM_JSON, JSON, NewsPlan, WritePlan
from lakesink.rows.scalars import same_operation
from lakesink.rows.schema import Field, Primitive, Struct, sql_type_of
from lakesink.rows.task_errors import LONGEST_VALUE, schema_mismatch, shown
from lakesink.rows.unfit import all_but
from lakesink_catalog.spark_types import sql_type
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import UNKNOWN_KEYS, Tally
from lakesink_protocol.quality import Quality, together
from lakesink_protocol.receipt import LONGEST_PLACE, MOST_MISFITS, Misfit
from lakesink_protocol.redact import shown as printable
from lakesink_protocol.row_changes import Operation

VALUE = "value"
KAFKA_COLUMNS: Mapping[str, str] = {
    "_kafka_partition": "partition",
    "_kafka_offset": "offset",
    "_kafka_timestamp": "timestamp",
    "_kafka_key": "key",
}
"""Kafka's columns by the names of the table's columns."""
INCOMING = tuple(dict.fromkeys((VALUE, *KAFKA_COLUMNS.values(), *PLACES)))
"""Columns that decoding reads: the document, Kafka's columns, and the places for messages."""

MOST_EXPLAINED = 1_000
"""Malformed documents whose misfit a task looks for, if they are put aside."""
_NO_COLUMNS = Struct((Field(0, "\0lakesink: no column", required=False, type=Primitive("string")),))
"""Read in the place of no columns, which no reader can read. No row gets its value."""
PutAside = Callable[[RowBatch, Mapping[int, Fault]], None]
"""Makes dead letters of the rows at these positions."""
GATHERED_BYTES = 16 * 1024 * 1024
"""Documents are decoded together up to this size: even a small batch costs milliseconds."""


class DocumentReader(ReadsDocuments, Protocol):
    """Reads documents of one format for one task, and knows why it cannot."""

    def news(self, plan: NewsPlan, struct: Struct) -> Find:
        """What finds the news of documents that it has read."""

    def explain(self, values: pa.Array, kind: Struct) -> list[list[Found]]:
        """For each of a few malformed documents, the values that do not fit."""


@dataclass(slots=True)
class TaskDecoder:
    """Decodes one task's documents to rows, or to changes of rows.

    A document is one row, but an event that changes a key is two changes (a split), and a tombstone is none.

    Attributes:
        put_aside: Takes the malformed documents of some rows, if the query wants that.
        leave: Takes documents with news, if the table follows the documents.
        malformed: Malformed documents, which fail the batch. The count stops when `MOST_MISFITS` values are described.
        misfits: The first values that do not fit.
        unknown: Keys without a column.
        explained: Malformed documents whose first value that does not fit was looked for, of those put aside.
        changed: How many were splits and tombstones.
    """

    plan: WritePlan
    schema: Struct
    task: int = 0
    put_aside: PutAside | None = None
    leave: Callable[[pa.RecordBatch], None] | None = None
    malformed: int = field(default=0, init=False)
    misfits: list[Misfit] = field(default_factory=list, init=False)
    unknown: UnknownKeys = field(default_factory=UnknownKeys, init=False)
    explained: int = field(default=0, init=False)
    changed: Tally = field(default_factory=Tally, init=False)
    _rescues: tuple[Rescue, ...] = field(default=(), init=False)
    _news: NewsRows | None = field(default=None, init=False)
    _refused: Mapping[int, str] = field(default_factory=dict, init=False)
    _places: Places = field(init=False)

    def __post_init__(self) -> None:
        self._places = Places(self.task, numbered=self.plan.news is None or not self.plan.news.is_last)

    @property
    def counts(self) -> Tally:
        """How often it was found."""
        return Tally({UNKNOWN_KEYS: self.unknown.count})

    @property
    def quality(self) -> Quality:
        """What was found in the documents."""
        return together([Quality(self.counts, self.unknown.names), *(rescue.quality for rescue in self._rescues)])

    @property
    def news(self) -> str:
        """What the documents need that were left; empty if none were."""
        return "" if self._news is None else self._news.news.to_json()

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RowBatch]:
        """The rows or changes in these batches, in their order, unless a document fails the batch."""
        for batch in joined(batches, GATHERED_BYTES):
            rows = self._decode(batch)
            if not self.malformed:
                yield rows
            elif len(self.misfits) == MOST_MISFITS:
                break
        deque(batches, maxlen=0)  # read and count the other rows; PySpark's worker can then continue

    def _decode(self, batch: pa.RecordBatch) -> RowBatch:
        raise NotImplementedError

    def _explain(self, values: pa.Array) -> list[list[Found]]:
        """For each of a few malformed documents, the values that do not fit."""
        raise NotImplementedError

    def _without_news(self, batch: pa.RecordBatch, parsed: Parsed) -> tuple[Parsed, pa.BooleanArray | None]:
        """Leave the documents with news; returns what is parsed of the others, and True for those left, if any are."""
        if self._news is None:
            return parsed, None
        left, refused = self._news.found(batch.column(VALUE), parsed)
        self._refused = {} if self._rescues else refused
        if self._refused:
            wrong = pc.invert(all_but(batch.num_rows, self._refused))
            parsed = Parsed(parsed.values, either(parsed.misfits, wrong), parsed.rest)
        if left is not None:
            assert self.leave is not None
            self.leave(batch.filter(left))
        return Parsed(parsed.values, but(parsed.misfits, left), but(parsed.rest, left)), left

    def _part_with(self, misfits: pa.BooleanArray, rows: RowBatch, others: Mapping[int, Fault]) -> None:
        """Put malformed documents aside, and others with their faults, or let the malformed ones fail the batch."""
        if self.put_aside is None:
            self._collect(misfits, rows.came)
        elif faults := {**others, **self._faults(misfits, rows.came)}:
            self.put_aside(rows, faults)

    def _faults(self, misfits: pa.BooleanArray, batch: pa.RecordBatch) -> dict[int, Fault]:
        """The first value of each malformed document that does not fit; the first documents only, for it takes time."""
        positions = pc.indices_nonzero(misfits)
        some = positions[: max(MOST_EXPLAINED - self.explained, 0)]
        self.explained += len(some)
        found = self._explain(batch.column(VALUE).take(some)) if len(some) else []
        faults = dict.fromkeys(positions.to_pylist(), Fault("VALUE_MALFORMED"))
        for position, column in self._refused.items():
            faults[position] = Fault("SCHEMA_MISMATCH", column, "no column can be added for this key")
        for position, values in zip(some.to_pylist(), found, strict=True):
            if position in self._refused:
                continue
            first = misfit_of(self.plan, "", values[0])
            said = f"{first.expected} expected, found {first.found}"
            faults[position] = Fault("VALUE_MALFORMED", first.column, said)
        return faults

    def _collect(self, misfits: pa.BooleanArray, batch: pa.RecordBatch) -> None:
        self.malformed += misfits.true_count
        positions = pc.indices_nonzero(misfits)[: MOST_MISFITS - len(self.misfits)]
        explained = self._explain(batch.column(VALUE).take(positions)) if len(positions) else []
        for position, found in zip(positions.to_pylist(), explained, strict=True):
            place = self._places.of(batch, position)
            self.misfits += [misfit_of(self.plan, place, one) for one in found]
        del self.misfits[MOST_MISFITS:]


@dataclass(slots=True)
class Decoder(TaskDecoder):
    """Decodes one task's documents: one row each. Changes are upserts, or of no known operation yet."""

    _own: Struct = field(init=False)
    _reader: DocumentReader = field(init=False)

    def __post_init__(self) -> None:
        TaskDecoder.__post_init__(self)
        changes = self.plan.changes
        own = own_columns(self.schema, self.plan.rescue_column)
        own = own if changes is None else with_exact(own, {*changes.keys, *changes.sequence})
        self._own = own if own.fields else _NO_COLUMNS
        self._reader = _reader_for(self.plan, self.unknown)
        self._rescues = (Rescue(self._own, self._reader.texts),) if self.plan.rescue_column else ()
        if self.plan.news is not None:
            find = self._reader.news(self.plan.news, self._own)
            self._news = NewsRows(self.plan.news, find, leaves_all=not self.schema.fields)

    def _decode(self, batch: pa.RecordBatch) -> RowBatch:
        values = batch.column(VALUE)
        parsed = self._reader.documents(values, self._own)
        names = [field.name for field in self.schema.fields]
        others = {name: batch.column(KAFKA_COLUMNS[name]) for name in names if name in KAFKA_COLUMNS}
        parsed, left = self._without_news(batch, parsed)
        for rescue in self._rescues:
            parsed, others[self.plan.rescue_column] = rescue.kept(values, parsed)
        decoded = iter(parsed.values.flatten())
        arrays = [others[name] if name in others else next(decoded) for name in names]
        rows = RowBatch(pa.RecordBatch.from_arrays(arrays, names=names), batch)
        if self.plan.changes is not None:
            deletes = self.plan.changes.deletes  # which documents delete is found later, of those that can be read
            operations = same_operation(Operation.UPSERT if deletes is None else None, batch.num_rows)
            rows = RowBatch(rows.rows, batch, None, operations, *positions_in(batch))
        if parsed.misfits is not None:
            self._part_with(parsed.misfits, rows, {})
        self._places.advance(batch)
        if not names:  # no document stays: each waits for the columns, is put aside or fails the batch
            return RowBatch(pa.RecordBatch.from_arrays([], names=[]), batch.slice(0, 0))
        gone = either(parsed.misfits, left)
        return rows if gone is None else rows.filter(pc.invert(gone))

    def _explain(self, values: pa.Array) -> list[list[Found]]:
        return self._reader.explain(values, self._own)


def misfit_of(plan: WritePlan, place: str, found: Found) -> Misfit:
    """A value that does not fit, for the driver; it is shown only if the query wants that."""
    value = f": {printable(found.value, LONGEST_VALUE)}" if plan.show_values and found.value else ""
    return Misfit(place[-LONGEST_PLACE:], found.column, found.expected, f"{found.kind}{value}")


def _reader_for(plan: WritePlan, unknown: UnknownKeys) -> DocumentReader:
    keeps = bool(plan.rescue_column)
    finds = keeps or plan.news is not None  # keys without a column; others are counted
    if plan.decode == JSON:
        return JsonReader(None if finds else unknown, marks=finds, forgives=keeps, encoding=plan.binary_encoding)
    try:
        from lakesink.decode.avro.messages import MessageReader  # an optional dependency, for Avro only
        from lakesink.decode.avro.registry import schemas_of
    except ModuleNotFoundError:
        raise WriteError.of("DECODER_MISSING", library="numpy") from None
    schemas = schemas_of(plan.schema_registry, plan.writer_schemas)
    return MessageReader(schemas, None if finds else unknown, forgives=keeps, encoding=plan.binary_encoding)


def own_columns(schema: Struct, rescue_column: str = "") -> Struct:
    """The columns that come from the documents."""
    others = {*KAFKA_COLUMNS, rescue_column}
    return Struct(tuple(field for field in schema.fields if field.name not in others))


def with_exact(columns: Struct, ids: Collection[int]) -> Struct:
    """The columns, those with these ids exact: without one, nobody knows which row a change is for, or its order."""
    return Struct(tuple(replace(one, is_exact=one.is_exact or one.field_id in ids) for one in columns.fields))


def check_documents(incoming: pa.Schema, schema: Struct, plan: WritePlan) -> None:
    """Check before a job that rows of this schema can be decoded into the table's columns."""
    is_json = plan.decode in (JSON, DEBEZIUM_JSON)
    if is_json:
        load_duckdb()
    if plan.rescue_column or plan.news is not None:
        load_unknown_keys()
    value = incoming.field(VALUE).type if VALUE in incoming.names else None
    kinds = {pa.binary(): "BINARY", pa.string(): "STRING"} if is_json else {pa.binary(): "BINARY"}
    if value not in kinds:
        found = "none" if value is None else shown(sql_type(value))
        raise schema_mismatch(
            f"Decoding needs a column {VALUE!r} of {' or '.join(kinds.values())}; the query has {found}.",
            action=f"Name the documents' column {VALUE!r}, as Kafka does: df.select(col('payload').alias('value')).",
        )
    if plan.news is None and not own_columns(schema, plan.rescue_column).fields:
        raise schema_mismatch(
            "The table has columns for Kafka's metadata, but none for the documents.",
            action="Add columns for the documents to the table, or remove the option decode.",
        )
    for one in schema.fields:
        if one.name in KAFKA_COLUMNS:
            _check_kafka_column(incoming, KAFKA_COLUMNS[one.name], one)


def _check_kafka_column(incoming: pa.Schema, name: str, column: Field) -> None:
    if name not in incoming.names:
        raise schema_mismatch(
            f"The table has a column for Kafka's {name!r}, which the query does not select.",
            action="Select this column of Kafka's source in the query, or drop the table's column.",
        )
    kind = incoming.field(name).type
    if not isinstance(column.type, Primitive) or lossless_cast(kind, column.type) is None:
        found, wanted = shown(sql_type(kind)), shown(sql_type_of(column.type))
        raise schema_mismatch(
            f"Column {name!r} is {found} in the query, but the table's {column.name!r} is {wanted}.",
            action=f"Select Kafka's own {name!r} in the query, or rename the query's column: the table's column"
            " gets the value of Kafka's. Or drop the table's column.",
        )
