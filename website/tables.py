"""What pages show and the code has: public modules, and the tables of options, errors and log lines."""

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping

from lakesink.settings.options import options_table_markdown
from lakesink.settings.options_of_reading import read_options_table_markdown
from lakesink_catalog.log import LEVELS, LINES
from lakesink_protocol.catalogue import errors_table_markdown
from lakesink_protocol.events import Event
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
_FIELD = re.compile(r"([a-z_]+)=%\(")


def between(text: str, name: str) -> str:
    """The part of a page between two comments."""
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0]


def renewed(text: str, name: str, table: str) -> str:
    """The page with another table between its two comments."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = text.partition(start)
    return f"{before}{start}{table}{end}{rest.partition(end)[2]}"


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


TABLES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "reference/options.md": ("options", options_table_markdown),
    "use/choose.md": ("abilities", abilities_table_markdown),
    "use/read.md": ("read options", read_options_table_markdown),
    "reference/errors.md": ("errors", errors_table_markdown),
    "reference/log.md": ("log lines", log_table_markdown),
}
"""Pages, the names of their comments, and their tables."""
