"""Scalars for Arrow's functions, made from bytes: `pa.scalar` and plain Python values would import pandas."""

import pyarrow as pa

from lakesink_protocol.row_changes import Operation

_BYTE = 8
FALSE, TRUE = (pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(bytes([bit]))])[0] for bit in (0, 1))


def whole_number(value: int, kind: pa.DataType) -> pa.Scalar:
    """A whole number of an integer type."""
    data = value.to_bytes(kind.bit_width // _BYTE, "little", signed=pa.types.is_signed_integer(kind))
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def int64(value: int) -> pa.Scalar:
    """A BIGINT."""
    return whole_number(value, pa.int64())


def uint64(value: int) -> pa.Scalar:
    """A whole number that is not negative."""
    return whole_number(value, pa.uint64())


def text(value: str) -> pa.Scalar:
    """A STRING."""
    data = value.encode()
    offsets = bytes(4) + len(data).to_bytes(4, "little")
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])[0]


def operation_scalar(operation: int) -> pa.Scalar:
    """An operation as changes have it."""
    return whole_number(operation, pa.int8())


def same_operation(operation: Operation | None, rows: int) -> pa.Array:
    """The operations of rows that all have this one, or none yet."""
    return pa.nulls(rows, pa.int8()) if operation is None else pa.repeat(operation_scalar(operation), rows)
