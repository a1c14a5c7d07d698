"""Dead letters: rows that cannot be written to their table, as rows of the table that keeps them.

A dead letter has the row or document as it came, the reason, and its place in the source. Imports PyArrow only.
"""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa

from lakesink.rows.changed_rows import exact_values
from lakesink.rows.lines import LineEncoder
from lakesink.rows.side_rows import APPLICATION, DIGEST_BYTES, SidePlan, digest_sum, side_key
from lakesink_protocol.identity import SinkKey, digest
from lakesink_protocol.quality import REPLAY

LETTERS = pa.schema(
    [
        ("letter_id", pa.string()),
        ("table_uuid", pa.string()),
        ("branch", pa.string()),
        ("sink", pa.string()),
        ("batch_id", pa.int64()),
        ("found_at", pa.timestamp("us", "UTC")),
        ("reason", pa.string()),
        ("column_name", pa.string()),
        ("detail", pa.string()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("payload", pa.string()),
        ("payload_bytes", pa.binary()),
        ("operation", pa.string()),
        ("row_key", pa.string()),
        ("row_sequence", pa.string()),
    ]
)
"""Columns of a table of dead letters. `payload` is the document, or the row as JSON; `payload_bytes` a document that is
not UTF-8 text, or a row without an exact JSON form as a stream of Arrow's IPC format. The last three are of a change by
key, and NULL where they could not be read: key and sequence are JSON objects of their columns."""
SUFFIX = "__dead_letters"
"""End of the name of such a table, if the user names none."""
REPLAYS_SUFFIX = "__replays"
"""End of the name of a table of replays, after that of the table of dead letters."""
VALUE = "value"
Told = Mapping[str, Sequence[str | None]]
"""Columns of dead letters by their names."""
_PLACES = {"file_path": "source", "topic": "topic", "partition": "partition", "offset": "offset", "key": "key"}
"""Columns of rows with documents, by the columns of a dead letter that get them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row cannot be written: the code of the error that it would be, and what it says."""

    reason: str
    column: str = ""
    detail: str = ""


@dataclass(slots=True)
class LetterRows:
    """Makes the dead letters of one task.

    Attributes:
        documents: True if the rows have a document each in the column ``value``.
        digest: Sum of the digests of all payloads: it does not depend on the order of the rows, or on their tasks.
    """

    plan: SidePlan
    documents: bool
    count: int = field(default=0, init=False)
    digest: int = field(default=0, init=False)
    _known: tuple[pa.Schema, LineEncoder] | None = field(default=None, init=False)

    def of(self, rows: pa.RecordBatch, faults: Sequence[Fault], told: Told) -> pa.RecordBatch:
        """One dead letter for each row, as it came; `told` has the columns that say which change it was."""
        texts, others = self._documents(rows) if self.documents else self._rows(rows)
        for text, other in zip(texts, others, strict=True):
            self.digest = digest_sum(self.digest, payload_digest(text, other))
        self.count += rows.num_rows
        columns = {
            "letter_id": [self.plan.application + uuid.uuid4().hex[len(self.plan.application) :] for _ in faults],
            "table_uuid": [self.plan.table_uuid] * len(faults),
            "branch": [self.plan.sink.branch] * len(faults),
            "sink": [self.plan.sink.name] * len(faults),
            "batch_id": [self.plan.plan.batch_id] * len(faults),
            "found_at": [datetime.now(UTC)] * len(faults),
            "reason": [fault.reason for fault in faults],
            "column_name": [fault.column or None for fault in faults],
            "detail": [fault.detail or None for fault in faults],
            "payload": texts,
            "payload_bytes": others,
            **told,
        } | (self._places(rows) if self.documents else {})
        arrays = [columns.get(one.name, pa.nulls(len(faults), one.type)) for one in LETTERS]
        converted = [
            one if isinstance(one, pa.Array) else pa.array(one, kind.type)
            for one, kind in zip(arrays, LETTERS, strict=True)
        ]
        return pa.RecordBatch.from_arrays(converted, schema=LETTERS)

    def _documents(self, rows: pa.RecordBatch) -> tuple[list[str | None], list[bytes | None]]:
        values = rows.column(VALUE).cast(pa.binary())
        texts: list[str | None] = exact_values(values, pa.string()).to_pylist()
        return texts, [value if text is None else None for value, text in zip(values.to_pylist(), texts, strict=True)]

    def _rows(self, rows: pa.RecordBatch) -> tuple[list[str | None], list[bytes | None]]:
        if self._known is None or not self._known[0].equals(rows.schema):
            self._known = rows.schema, LineEncoder(rows.schema)
        encoder = self._known[1]
        texts = json_lines(encoder, rows)
        others = [_stream(rows.slice(at, 1)) if text is None else None for at, text in enumerate(texts)]
        return texts, others

    def _places(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        """Values that are none of Kafka's, such as a date in `partition`, are NULL."""
        return {
            place: exact_values(rows.column(name), LETTERS.field(place).type)
            for name, place in _PLACES.items()
            if name in rows.schema.names
        }


def is_replay_of(application: str, sink: SinkKey) -> bool:
    """True if an application replays the dead letters of this sink: those of each sink have replays of their own."""
    return application.startswith(REPLAY) and application.endswith(replays_of(sink))


def replays_of(sink: SinkKey) -> str:
    """How the names of these applications end."""
    return "." + digest({"sink": sink.ledger_property})[:APPLICATION]


def letters_key(owner: SinkKey, query_id: str, table_uuid: str) -> SinkKey:
    """The application that writes the dead letters of a sink, a query and a table."""
    return side_key(owner, "letters", query_id, table_uuid)


def payload_digest(text: str | None, other: bytes | None) -> int:
    """The digest of one payload."""
    payload = text.encode() if text is not None else other or b""
    return int.from_bytes(hashlib.sha256(payload).digest()[:DIGEST_BYTES])


def json_lines(encoder: LineEncoder, rows: pa.RecordBatch) -> list[str | None]:
    """Each row as JSON; None for one without an exact JSON form: text that is not UTF-8, or a far date."""
    try:
        return list(encoder.encode(rows).decode().split("\n")[:-1])
    except (ValueError, TypeError):
        if rows.num_rows == 1:
            return [None]
    return [line for at in range(rows.num_rows) for line in json_lines(encoder, rows.slice(at, 1))]


def _stream(row: pa.RecordBatch) -> bytes:
    whole = row.take(pa.array([0]))  # a slice would be sent with its whole buffers
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as stream:
        stream.write_batch(whole)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
