"""What each mode and each entry point can do, asked of the options' own rules."""

from collections.abc import Mapping
from typing import Any

from lakesink.api.stream_to import row_settings, stream_to
from lakesink.settings.relations import BATCHES, Entry
from lakesink.settings.settings import Settings
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import SinkKey

_STREAM = {"sink_id": "it", "checkpoint": "/checkpoint"}
_MODES: Mapping[str, dict[str, Any]] = {
    "append": {},
    "append, documents": {"decode": "json"},
    "upsert": {"mode": "upsert", "sequence_by": "at"},
    "upsert, documents": {"mode": "upsert", "sequence_by": "at", "decode": "json"},
    "changes": {"mode": "changes", "sequence_by": "at", "apply_as_deletes": "deleted"},
    "changes, documents": {"mode": "changes", "sequence_by": "at", "apply_as_deletes": "deleted", "decode": "json"},
    "changes, Debezium's events": {"mode": "changes", "sequence_by": "at", "decode": "debezium-json"},
}
_ABILITIES: Mapping[str, dict[str, Any]] = {
    "create the table: `create_table`; for documents with `schema`": {"create_table": True},
    'leave out columns that the table lacks: `schema_evolution="ignore"`': {"schema_evolution": "ignore"},
    'stop at them: `"fail"`': {"schema_evolution": "fail"},
    'add them: `"add"`, `"widen"`': {"schema_evolution": "widen"},
    "keep what fits no column: `rescue_column`": {"rescue_column": "rest"},
    'put bad rows aside: `on_malformed="quarantine"`; changes need `sequence_by`': {"on_malformed": "quarantine"},
    "conditions that fail or warn: `expect`": {"expect": {"rule": "id > 0"}},
    "conditions that put rows aside: `expect`; changes need `sequence_by`": {
        "expect": {"rule": ("id > 0", "quarantine")}
    },
    "order the changes of a key: `sequence_by`": {"sequence_by": "at"},
    'keep deleted rows: `deletes="soft"`': {"deletes": "soft"},
    "a table of changes for readers: `changelog_table`": {"changelog_table": "demo.changes"},
    'results that replace earlier ones: `output_mode="update"`': {"output_mode": "update"},
    'one task for a partition: `distribution_mode="hash"`': {"distribution_mode": "hash"},
}


_IN_FRONT: Mapping[str, dict[str, Any]] = {
    "directory, topic, own sink": {},
    "the same, documents": {"decode": "json", "schema": "id BIGINT"},
}
"""What `lakesink.stream_files` and `stream_to` write."""


_ENTRIES: Mapping[str, tuple[Entry, ...]] = {
    "stream": (Entry.STREAM,),
    "batch job": (Entry.APPEND, Entry.UPSERT),
    "format": (Entry.FORMAT_STREAM,),
}


def abilities_table_markdown() -> str:
    """A row for each ability, a column for each mode, and for targets that are no tables."""
    heads = ["", *_MODES, *_IN_FRONT]
    rows = [
        [
            label,
            *(_who_can(mode | found) for mode in _MODES.values()),
            *(_can(one | found) for one in _IN_FRONT.values()),
        ]
        for label, found in _ABILITIES.items()
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows]) + "\n"


def _who_can(options: dict[str, Any]) -> str:
    able = [name for name, entries in _ENTRIES.items() if any(_accepts(entry, options) for entry in entries)]
    return "yes" if len(able) == len(_ENTRIES) else ", ".join(able) or "-"


def _can(options: dict[str, Any]) -> str:
    try:
        row_settings(stream_to, SinkKey("sink"), options)
    except SettingsError:
        return "-"
    return "yes"


def _accepts(entry: Entry, options: dict[str, Any]) -> bool:
    try:
        Settings.parse(options if entry in BATCHES else _STREAM | options, entry=entry)
    except SettingsError:
        return False
    return True
