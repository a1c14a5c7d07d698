"""Exactly-once sink from Spark Structured Streaming into Apache Iceberg tables."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakesink._version import __version__

if TYPE_CHECKING:
    from lakesink.api.replay import replay_dead_letters
    from lakesink.api.stream_files import stream_files
    from lakesink.api.stream_to import stream_to
    from lakesink.api.streams import append, stream, upsert
    from lakesink.api.with_expectations import with_expectations
    from lakesink.sinks.iceberg.side.replays import Replayed
    from lakesink.sinks.kafka.kafka_sink import KafkaSink
    from lakesink.spark.source.connect import register
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
    from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
    from lakesink_tools.audit.audit import audit_table
    from lakesink_tools.operate.maintain import maintain_table
    from lakesink_tools.past.committed_files import committed_files
    from lakesink_tools.past.records import Record
    from lakesink_tools.past.table_history import history

__all__ = [
    "AlreadyCommitted",
    "BatchRefused",
    "CatalogError",
    "CommitUnresolved",
    "Committed",
    "KafkaSink",
    "LakesinkError",
    "Outcome",
    "PartialBatch",
    "QueryError",
    "Reason",
    "Record",
    "Replayed",
    "SettingsError",
    "WriteError",
    "__version__",
    "append",
    "audit_table",
    "committed_files",
    "history",
    "maintain_table",
    "register",
    "replay_dead_letters",
    "stream",
    "stream_files",
    "stream_to",
    "upsert",
    "with_expectations",
]

_HOMES = {
    "append": "lakesink.api.streams",
    "audit_table": "lakesink_tools.audit.audit",
    "committed_files": "lakesink_tools.past.committed_files",
    "history": "lakesink_tools.past.table_history",
    "maintain_table": "lakesink_tools.operate.maintain",
    "register": "lakesink.spark.source.connect",
    "replay_dead_letters": "lakesink.api.replay",
    "stream": "lakesink.api.streams",
    "stream_files": "lakesink.api.stream_files",
    "stream_to": "lakesink.api.stream_to",
    "upsert": "lakesink.api.streams",
    "with_expectations": "lakesink.api.with_expectations",
    "AlreadyCommitted": "lakesink_protocol.outcome",
    "Committed": "lakesink_protocol.outcome",
    "KafkaSink": "lakesink.sinks.kafka.kafka_sink",
    "Outcome": "lakesink_protocol.outcome",
    "Record": "lakesink_tools.past.records",
    "Replayed": "lakesink.sinks.iceberg.side.replays",
}
_ERRORS = "lakesink_protocol.errors"


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used: executors and the command line need no PySpark."""
    if name == "java":  # a module: `lakesink.java.use()`
        return import_module("lakesink.java")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES.get(name, _ERRORS)), name)
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "confluent_kafka"):
            raise
        errors = import_module(_ERRORS)
        if error.name == "pyspark":
            raise errors.QueryError.of("SPARK_MISSING", name=name) from None
        raise errors.SettingsError.of("KAFKA_CLIENT_MISSING", what=f"lakesink.{name}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
