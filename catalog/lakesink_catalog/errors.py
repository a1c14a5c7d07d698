"""The exceptions of lakesink, see `lakesink_protocol.errors`."""

from lakesink_protocol.errors import (
    BatchRefused,
    CatalogError,
    CommitUnresolved,
    LakesinkError,
    PartialBatch,
    QueryError,
    Reason,
    SettingsError,
    WriteError,
)

__all__ = [
    "BatchRefused",
    "CatalogError",
    "CommitUnresolved",
    "LakesinkError",
    "PartialBatch",
    "QueryError",
    "Reason",
    "SettingsError",
    "WriteError",
]
