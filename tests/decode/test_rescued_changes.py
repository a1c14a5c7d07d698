"""Documents that are changes by key: what does not fit is rescued, but not in the columns of key and sequence."""

import json
from typing import Any

import pyarrow as pa
import pytest

from lakesink.decode.documents import Decoder
from lakesink.rows.plan import AVRO, JSON, ChangesPlan, WritePlan
from lakesink_protocol.row_changes import Mode
from tests.decode.avro.messages import encoded, message, record
from tests.decode.debezium.events import table

COLUMNS = table("_rescued", id="int", version="int", size="int")
RECORD = record(*((name, ["null", "long"]) for name in ("id", "version", "size")), name="Row")


def read(rows: list[dict[str, Any]], decode: str) -> tuple[list[Any], Decoder]:
    values = [json.dumps(row).encode() if decode == JSON else message(encoded(RECORD, row)) for row in rows]
    changes = ChangesPlan(Mode.UPSERT, (1,), (2,))
    of_avro: dict[str, Any] = {"schema_registry": "f", "writer_schemas": {7: json.dumps(RECORD)}}
    plan = WritePlan("", 0, 0, (), "", "", changes=changes, decode=decode, rescue_column="_rescued", **of_avro)
    decoder = Decoder(plan, COLUMNS)
    batches = decoder.rows(iter([pa.record_batch({"value": pa.array(values, pa.binary())})]))
    return [row for one in batches for row in one.rows.to_pylist()], decoder


@pytest.mark.parametrize("decode", [JSON, AVRO])
@pytest.mark.parametrize("column", ["id", "version"])
def test_a_key_or_sequence_that_does_not_fit_is_malformed(decode: str, column: str) -> None:
    rows, decoder = read([{"id": 1, "version": 1, "size": 1} | {column: 2**31}], decode)
    assert (rows, decoder.malformed) == ([], 1)
    assert [(one.column, one.expected) for one in decoder.misfits] == [(column, "INT")]


@pytest.mark.parametrize("decode", [JSON, AVRO])
def test_other_values_are_rescued_and_a_sequence_may_be_null(decode: str) -> None:
    rows, _ = read([{"id": 1, "version": None, "size": 2**31}], decode)
    text = '{"unfit":{"size":{"expected":"INT","value":2147483648}}}'
    assert rows == [{"id": 1, "version": None, "size": None, "_rescued": text}]
