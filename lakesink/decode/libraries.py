"""The optional library of the JSON decoder, for tasks, and for the driver's check before a job."""

from typing import Any

from lakesink.writer.libraries import check_library
from lakesink.writer.refusals import decoder_missing


def load_duckdb() -> Any:
    """The module `duckdb`; raises `WriteError` if it is not installed or too old."""
    try:
        import duckdb  # an optional dependency, for JSON only
    except ModuleNotFoundError:
        raise decoder_missing("duckdb") from None
    check_library("duckdb", duckdb.__version__)
    return duckdb
