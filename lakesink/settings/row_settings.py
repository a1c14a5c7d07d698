"""Options of the rows of a stream whose target is no table: `lakesink.stream_to` and `stream_files`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakesink.rows.plan import DEBEZIUM
from lakesink.settings.option import option_unknown
from lakesink.settings.option_types import RowOptions
from lakesink.settings.options import BY_NAME, option_invalid
from lakesink.settings.settings import Settings
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import SinkKey

_ROW_OPTIONS = tuple(RowOptions.__annotations__)


def owner_of(sink: str) -> SinkKey:
    """What names a sink in its dead letters: its name, without characters that a key cannot have."""
    return SinkKey(re.sub(r"[^A-Za-z0-9._-]+", "-", sink).strip("-._")[:64] or "sink")


def row_settings(function: str, sink: str, options: Mapping[str, Any], others: Sequence[str] = ()) -> Settings:
    """The parsed options; `others` are those that the function reads itself.

    Raises:
        SettingsError: An option is unknown, malformed, or contradicts another.
    """
    known = (*others, *_ROW_OPTIONS)
    for name in options:
        if name not in known:
            of_table = "Only a table can have it. Write the stream into a table with lakesink.stream, or leave it out."
            raise option_unknown(function, name, known, of_table if name in BY_NAME else "")
    decode = options.get("decode")
    if decode in DEBEZIUM:
        what = f"{function} has no decode={decode!r}: such events are changes by key, and need a table."
        raise option_invalid("decode", what)
    needed: dict[str, Any] = {"sink_id": owner_of(sink).name, "checkpoint": "/", "create_table": True}
    settings = Settings.parse({**needed, **options})
    if settings.decode and not settings.schema:
        raise SettingsError.of("OPTION_MISSING", name="schema", doc=BY_NAME["schema"].doc)
    return settings
