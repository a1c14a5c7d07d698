"""The optional libraries of the JSON decoder, for tasks, and for the driver's check before a job."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lakesink.rows.libraries import check_library
from lakesink.rows.schema import Struct
from lakesink_protocol.errors import WriteError

FindUnknownKeys = Callable[[pa.Array, Sequence[pa.Array], Struct], pa.BooleanArray | None]
"""Finds objects with a member for which a struct has no field; see `json_unknown.with_unknown_keys`."""


def load_duckdb() -> Any:
    """The module `duckdb`; raises `WriteError` if it is not installed or too old."""
    try:
        import duckdb  # an optional dependency, for JSON only
    except ModuleNotFoundError:
        raise WriteError.of("DECODER_MISSING", library="duckdb") from None
    check_library("duckdb", duckdb.__version__)
    return duckdb


def load_unknown_keys() -> FindUnknownKeys:
    """The function `with_unknown_keys`; raises `WriteError` if numpy, which it needs, is not installed."""
    try:
        from lakesink.decode.json_unknown import with_unknown_keys  # an optional dependency, for rescue_column only
    except ModuleNotFoundError:
        raise WriteError.of("DECODER_MISSING", library="numpy") from None
    return with_unknown_keys
