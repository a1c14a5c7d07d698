"""DuckDB is an extra: what needs it says so before it starts."""

from importlib.util import find_spec

from lakesink_protocol.errors import SettingsError


def check_duckdb(command: str) -> None:
    """Raise a `SettingsError` if DuckDB is not installed."""
    if find_spec("duckdb") is None:
        raise SettingsError(
            "DUCKDB_MISSING", f"{command} needs DuckDB, which is not installed.", action="pip install duckdb"
        )
