"""Entries of new data files, byte for byte as PyIceberg's writer encodes them, which was used before."""

import math
import random
import struct
from io import BytesIO
from typing import Any

import pytest
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import resolve_writer
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, PrimitiveType

from lakesink_catalog.manifests.encode import entry_encoder
from lakesink_catalog.manifests.write import avro_layout, entry_schema
from lakesink_protocol.change import ContentFile
from lakesink_protocol.receipt_json import ReceiptInvalid
from tests.catalog.partition_cases import CASES, Case

SNAPSHOT_ID = 2**62 + 5
COUNTS = (0, 1, 63, 64, 127, 128, 8191, 8192, 2**31, 2**53, 2**63 - 1)
SIZES = (0, 1, 13, 64, 300)


def by_pyiceberg(file: ContentFile, spec: PartitionSpec, schema: Schema) -> bytes:
    fields = spec.partition_type(schema).fields
    pairs = zip(fields, file.partition, strict=True)
    partition = [None if value is None else _value(field, value) for field, value in pairs]
    data_file = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_bytes,
        column_sizes=dict(file.column_sizes),
        value_counts=dict(file.value_counts),
        null_value_counts=dict(file.null_value_counts),
        nan_value_counts=dict(file.nan_value_counts),
        lower_bounds=dict(file.lower_bounds),
        upper_bounds=dict(file.upper_bounds),
        split_offsets=list(file.split_offsets),
        sort_order_id=file.sort_order_id,
    )
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=SNAPSHOT_ID,
        sequence_number=None,
        file_sequence_number=None,
        data_file=data_file,
    )
    out, written = BytesIO(), entry_schema(spec, schema)
    resolve_writer(record_schema=written, file_schema=written).write(BinaryEncoder(out), entry)
    return out.getvalue()


def _value(field: NestedField, value: bytes) -> Any:
    assert isinstance(field.field_type, PrimitiveType)
    return from_bytes(field.field_type, value)


def any_file(chance: random.Random, partition: tuple[bytes | None, ...]) -> ContentFile:
    def counts() -> dict[int, int]:
        return {chance.randrange(1, 2**31): chance.choice(COUNTS) for _ in range(chance.choice(SIZES))}

    def bounds() -> dict[int, bytes]:
        return {number: chance.randbytes(chance.choice(SIZES)) for number in range(chance.choice(SIZES))}

    return ContentFile(
        path=chance.choice(["a", "ä", "\U0001f600"]) * chance.choice(SIZES),
        spec_id=0,
        partition=partition,
        record_count=chance.choice(COUNTS),
        file_size_bytes=chance.choice(COUNTS),
        column_sizes=counts(),
        value_counts=counts(),
        null_value_counts=counts(),
        nan_value_counts=counts(),
        lower_bounds=bounds(),
        upper_bounds=bounds(),
        split_offsets=tuple(chance.choice(COUNTS) for _ in range(chance.choice(SIZES))),
        sort_order_id=chance.choice([0, 1, 70, 2**31 - 1]),
    )


def _table(*cases: Case) -> tuple[PartitionSpec, Schema]:
    schema = Schema(
        NestedField(1, "id", LongType()), *(NestedField(2 + n, f"c{n}", case.source) for n, case in enumerate(cases))
    )
    parts = (PartitionField(2 + n, 1000 + n, case.transform, f"p {n}") for n, case in enumerate(cases))
    return PartitionSpec(*parts), schema


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_partition_value_is_encoded_as_by_pyiceberg(case: Case) -> None:
    spec, schema = _table(case)
    encode, chance = entry_encoder(avro_layout(spec, schema), SNAPSHOT_ID), random.Random(1)
    nans = [math.nan] if case.values and isinstance(case.values[0], float) else []
    for value in [None, *nans, *case.values]:
        file = any_file(chance, (None if value is None else case.encode(value),))
        assert encode(file) == by_pyiceberg(file, spec, schema)


@pytest.mark.parametrize("seed", range(20))
def test_every_file_is_encoded_as_by_pyiceberg(seed: int) -> None:
    chance = random.Random(seed)
    cases = chance.sample([case for case in CASES if case.values], chance.randrange(4))
    spec, schema = _table(*cases)
    encode = entry_encoder(avro_layout(spec, schema), SNAPSHOT_ID)
    for _ in range(5):
        file = any_file(chance, tuple(case.encode(chance.choice(case.values)) for case in cases))
        assert encode(file) == by_pyiceberg(file, spec, schema)


WRONG = [b"", b"\xff" * 7, b"\xff" * 200]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_value_that_is_not_of_its_type_is_refused_wherever_pyiceberg_refuses_it(case: Case) -> None:
    spec, schema = _table(case)
    encode = entry_encoder(avro_layout(spec, schema), SNAPSHOT_ID)
    for value in WRONG:
        file = any_file(random.Random(1), (value,))
        try:
            found = by_pyiceberg(file, spec, schema)
        except (ValueError, OverflowError, struct.error, AssertionError):
            with pytest.raises(ReceiptInvalid):
                encode(file)
            continue
        try:
            assert encode(file) == found
        except ReceiptInvalid:
            assert found is not None  # PyIceberg writes what no reader can read


@pytest.mark.parametrize("partition", [(), (None, None)])
def test_a_partition_with_another_number_of_values_is_refused(partition: tuple[None, ...]) -> None:
    spec, schema = _table(CASES[0])
    with pytest.raises(ReceiptInvalid):
        entry_encoder(avro_layout(spec, schema), SNAPSHOT_ID)(any_file(random.Random(1), partition))
