"""What is refused before a stream starts, by the names of its tables and by their columns."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.preflight import check_start
from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_protocol.errors import SettingsError, WriteError
from lakesink_protocol.identity import SinkKey
from testkit.builders import TABLE, Lake


def start(folder: Path, table: str, names: str, **options: Any) -> None:
    """Check a stream of rows with these columns, in a session that distinguishes them by case."""
    settings = Settings.parse({"sink_id": "s", "checkpoint": "/ck", **options})
    found = FoundCatalog("test", {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"})
    rows = pa.schema([(name, pa.int64()) for name in names])
    check_start(found, table, SinkKey("s"), settings, rows, case_sensitive=True)


def test_a_malformed_name_is_told_before_a_missing_catalog(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="it needs a namespace"):
        start(tmp_path, "events", "k")


def test_a_changelog_that_no_table_can_be_is_refused_before_the_start(tmp_path: Path) -> None:
    """Iceberg lets columns differ only in case, and a table that lakesink creates has none."""
    fields = [NestedField(at, name, LongType(), required=name == "k") for at, name in enumerate("kaA", 1)]
    Lake.make(tmp_path, schema=Schema(*fields, identifier_field_ids=[1]))
    start(tmp_path, TABLE, "kaA", mode="upsert")
    with pytest.raises(WriteError, match=r"SCHEMA_UNSUPPORTED.*'a' and 'A' differ at most in case"):
        start(tmp_path, TABLE, "kaA", mode="upsert", changelog_table="demo.changes")
