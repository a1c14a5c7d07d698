"""Events as Debezium writes them, and what becomes of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakesink.decode.debezium.decoder import DebeziumDecoder
from lakesink.rows.plan import DEBEZIUM_JSON, ChangesPlan, WritePlan
from lakesink.rows.schema import Field, Primitive, Struct, Type
from lakesink_protocol.row_changes import Mode, Operation

Row = dict[str, Any]
Change = tuple[str, Row, int]
"""Operation, row, and offset."""
TOPIC = "shop.public.orders"


def table(*names: str, key: Sequence[str] = ("id",), **kinds: Type | str) -> Struct:
    """Columns; those of the key are required, as lakesink demands."""
    found: dict[str, Type | str] = dict.fromkeys(key, "long") | kinds | dict.fromkeys(names, "string")
    return Struct(
        tuple(
            Field(number, name, name in key, Primitive(kind) if isinstance(kind, str) else kind)
            for number, (name, kind) in enumerate(found.items(), 1)
        )
    )


def decoder(
    columns: Struct, *, key: Sequence[str] = ("id",), sequence: Sequence[str] = (), **plan: Any
) -> DebeziumDecoder:
    numbers = {one.name: one.field_id for one in columns.fields}
    soft = plan.pop("soft_deletes", False)
    logs = plan.pop("has_changelog", False)
    keys, sequences = (tuple(numbers[one] for one in names) for names in (key, sequence))
    changes = ChangesPlan(Mode.CHANGES, keys, sequences, soft, has_changelog=logs)
    settings = {"decode": DEBEZIUM_JSON, **plan}
    return DebeziumDecoder(WritePlan("", 0, 0, (), "", "", changes=changes, **settings), columns)


def batch(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, first: int = 0) -> pa.RecordBatch:
    """Records of one partition, as Spark's Kafka source gives them."""
    rows = len(values)
    arrays = {
        "key": pa.array(keys or [None] * rows, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array([TOPIC] * rows),
        "partition": pa.array([2] * rows, pa.int32()),
        "offset": pa.array(range(first, first + rows), pa.int64()),
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def text(document: Any) -> bytes | None:
    """A document as JSON; texts, bytes and None stay as they are."""
    if document is None or isinstance(document, bytes):
        return document
    return (document if isinstance(document, str) else json.dumps(document)).encode()


def changes_of(found: DebeziumDecoder, batches: Iterable[pa.RecordBatch]) -> list[Change]:
    """All changes, in their order."""
    result: list[Change] = []
    for one in (batch.changed for batch in found.rows(iter(batches))):
        for part in (*one.rows.columns, one.operations, one.places, one.offsets):
            part.validate(full=True)
            assert len(part) == one.rows.num_rows
        assert one.operations.type == pa.int8()
        names = [Operation(number).name for number in one.operations.to_pylist()]
        result += zip(names, one.rows.to_pylist(), one.offsets.to_pylist(), strict=True)
    return result


def decoded(
    columns: Struct, *documents: Any, keys: Sequence[Any] | None = None, **settings: Any
) -> tuple[list[Change], DebeziumDecoder]:
    """The changes of documents, and their decoder."""
    found = decoder(columns, **settings)
    known = None if keys is None else [text(one) for one in keys]
    return changes_of(found, [batch([text(one) for one in documents], known)]), found


def wrapped(payload: Any, **types: Mapping[str, Any]) -> Row:
    """An event with its schema, as Kafka Connect's JSON converter writes it with ``schemas.enable``."""
    fields = [{"field": name, "optional": True, **kind} for name, kind in types.items()]
    rows = [{"type": "struct", "optional": True, "field": side, "fields": fields} for side in ("before", "after")]
    schema = {"type": "struct", "fields": [*rows, {"type": "string", "field": "op"}], "name": "shop.Envelope"}
    return {"schema": schema, "payload": payload}


def event(operation: str, after: Any = None, before: Any = None) -> Row:
    """An envelope."""
    source = {"connector": "postgresql", "name": "shop", "op": "x", "after": {"id": -1}, "lsn": 1, "snapshot": "last"}
    return {"before": before, "after": after, "source": source, "transaction": None, "op": operation, "ts_ms": 1}
