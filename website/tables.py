"""What pages show and the code has: public modules, and the tables of options, errors and log lines."""

import inspect
import logging
import re
from collections.abc import Callable, Mapping

from lakesink.settings.options import options_table_markdown
from lakesink.settings.options_of_reading import read_options_table_markdown
from lakesink_protocol import events
from lakesink_protocol.catalogue import errors_table_markdown
from website.abilities import abilities_table_markdown

PUBLIC_MODULES = (
    "lakesink",
    "lakesink.java",
    "lakesink.two_phase",
    "lakesink.testing",
    "lakesink.sinks.record_folder",
    "lakesink_catalog.identity",
    "lakesink_catalog.connect",
    "lakesink_catalog.tables",
)
_FIELD = re.compile(r"(?:%\((\w+)\)s|(\w+))=%\(")
"""A field of a line; its name is fixed, or an attribute of the event."""
_BY_HAND = (events.QueryStarted, events.BatchEnded)
"""Events whose lines the page explains one by one."""


def between(text: str, name: str) -> str:
    """The part of a page between two comments."""
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0]


def renewed(text: str, name: str, table: str) -> str:
    """The page with another table between its two comments."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = text.partition(start)
    return f"{before}{start}{table}{end}{rest.partition(end)[2]}"


def log_table_markdown() -> str:
    """The line of every event that has one, by its name."""
    kinds = (kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event))
    rows = sorted(_row(kind) for kind in kinds if kind.line and not issubclass(kind, _BY_HAND))
    return "\n".join(["| event | level | meaning | fields |", "|---|---|---|---|", *rows]) + "\n"


def _row(event: type[events.Event]) -> str:
    name = event.line.split()[0].replace("%(command)s", "COMMAND")
    fields = ", ".join(f"`{attribute or field}`" for attribute, field in _FIELD.findall(event.line))
    meaning = " ".join((inspect.getdoc(event) or "").partition("\n\n")[0].split())
    return f"| `{name}` | {logging.getLevelName(event.level)} | {meaning} | {fields} |"


TABLES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "reference/options.md": ("options", options_table_markdown),
    "use/choose.md": ("abilities", abilities_table_markdown),
    "use/read.md": ("read options", read_options_table_markdown),
    "reference/errors.md": ("errors", errors_table_markdown),
    "reference/log.md": ("log lines", log_table_markdown),
}
"""Pages, the names of their comments, and their tables."""
