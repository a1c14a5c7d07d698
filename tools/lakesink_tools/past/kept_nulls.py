"""Scans of PyIceberg that keep NULL lists and maps of structs: PyIceberg 0.12 reads them as empty ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import pyarrow as reader

_ITS_OWN = reader.ArrowProjectionVisitor


class _KeepsNulls(_ITS_OWN):
    def list(self, list_type: Any, list_array: Any, value_array: Any) -> pa.Array | None:
        return _with_nulls_of(list_array, super().list(list_type, list_array, value_array))

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> pa.Array | None:
        return _with_nulls_of(map_array, super().map(map_type, map_array, key_result, value_result))


@contextmanager
def kept_nulls() -> Iterator[None]:
    """Within this block, what is NULL in a data file is NULL in a scan."""
    reader.ArrowProjectionVisitor = _KeepsNulls  # type: ignore[misc] # a scan takes no other visitor
    try:
        yield
    finally:
        reader.ArrowProjectionVisitor = _ITS_OWN  # type: ignore[misc]


def _with_nulls_of(stored: pa.Array, read: pa.Array | None) -> pa.Array | None:
    if read is None or read.null_count == stored.null_count:
        return read
    return pc.if_else(stored.is_valid(), read, pa.nulls(len(read), read.type))
