"""The table of log lines, from the events and the texts of the log."""

import inspect
import logging
import re
from collections.abc import Iterator

from lakesink_catalog.log import LEVELS, LINES
from lakesink_protocol.events import Event

_FIELD = re.compile(r"([a-z_]+)=%\(")


def log_table_markdown() -> str:
    """Every line with fixed fields, by the name of its event."""
    return "\n".join(["| event | level | meaning | fields |", "|---|---|---|---|", *sorted(_rows())]) + "\n"


def _rows() -> Iterator[str]:
    for event, line in LINES.items():
        name = line.split()[0].replace("%(command)s", "COMMAND")
        level = logging.getLevelName(LEVELS.get(event, logging.WARNING))
        fields = ", ".join(f"`{field}`" for field in _FIELD.findall(line))
        yield f"| `{name}` | {level} | {_meaning(event)} | {fields} |"


def _meaning(event: type[Event]) -> str:
    return " ".join((inspect.getdoc(event) or "").partition("\n\n")[0].split())
