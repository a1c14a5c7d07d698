"""The documents of the workload with JSON, and the table that they go into."""

import json
from random import Random

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

EVENTS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "customer", LongType()),
    NestedField(3, "quantity", LongType()),
    NestedField(4, "price", DoubleType()),
    NestedField(5, "weight", DoubleType()),
    NestedField(6, "amount", DecimalType(12, 2)),
    NestedField(7, "at", TimestamptzType()),
    NestedField(8, "paid", BooleanType()),
    NestedField(9, "city", StringType()),
    NestedField(10, "note", StringType()),
)
_CITIES = ("Amsterdam", "Buenos Aires", "Casablanca", "Darwin", "Edinburgh")


def event(number: int) -> bytes:
    """A document of about 290 bytes; every column is in it."""
    chance = Random(number)  # noqa: S311 - seeded, not secret
    at = f"2024-{1 + number % 12:02}-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:07.{number % 10**6:06}Z"
    return json.dumps(
        {
            "id": number,
            "customer": chance.getrandbits(40),
            "quantity": chance.randint(1, 99),
            "price": chance.random() * 1000,
            "weight": chance.random(),
            "amount": chance.randint(1, 10**7) / 100,
            "at": at,
            "paid": chance.random() < 0.5,
            "city": chance.choice(_CITIES),
            "note": f"{chance.getrandbits(280):070x}",
        }
    ).encode()


def typed_events(count: int) -> pa.Table:
    """The rows that the first so many documents stand for, by nothing that is measured here."""
    documents = [json.loads(event(number), parse_float=str) for number in range(count)]
    columns = schema_to_pyarrow(EVENTS, include_field_ids=False)
    arrays = [pa.array([document[column.name] for document in documents]).cast(column.type) for column in columns]
    return pa.Table.from_arrays(arrays, schema=columns)
