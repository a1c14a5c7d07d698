"""What pages show and the code has: public modules, and the tables of options, errors, log lines and metrics."""

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, groupby

from lakesink.observe.metrics import METRICS, OF_CHANGES, Metric
from lakesink.settings.option import Option
from lakesink.settings.options import OPTIONS
from lakesink.settings.options_of_reading import ONE_START, OPTIONS_OF_READING
from lakesink.settings.relations import RELATIONS, notes
from lakesink_catalog.failpoints import ACTIONS, FAILPOINTS
from lakesink_protocol import events
from lakesink_protocol.catalogue import explanations, opened
from lakesink_tools.testing.promises import Promise
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
_LINK = re.compile(r" ?(See \[.*\)\.)$")
_OF_CHANGES = frozenset(OF_CHANGES.values())
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


def _table(columns: str, rows: Iterable[str]) -> str:
    """A Markdown table; the cells of a row and the names of columns stand between bars."""
    return "\n".join([f"| {columns} |", "|---" * (columns.count(" | ") + 1) + "|", *rows]) + "\n"


def options_table() -> str:
    """The options of streams and appends."""
    rows = (
        f'| <a id="{one.name}"></a>`{one.name}` | {one.type} | {one.default} | {_meaning_of_option(one)} |'
        for one in OPTIONS
    )
    return _table("option | type | default | meaning", rows)


def _meaning_of_option(option: Option) -> str:
    overridden = f" Overrides the table property `{option.table_property}`." if option.table_property else ""
    return option.doc + overridden + notes(option.name, RELATIONS)


def read_options_table() -> str:
    """The options for reading."""
    rows = (
        f"| `{one.name}` | {one.type} | {one.default} | {one.doc}{notes(one.name, (ONE_START,))} |"
        for one in OPTIONS_OF_READING
    )
    return _table("option | type | default | meaning", rows)


def errors_table() -> str:
    """A table for each time when errors happen."""
    parts = ""
    for when, every in groupby(explanations().values(), lambda one: one.when):
        rows = (
            f'| <a id="{one.code.lower()}"></a>`{one.code}` | {_markdown(one.text.says)} | {_briefly(one.text.do)} |'
            for one in every
        )
        parts += f"\n## {when.value}\n\n{_table('code | what happened | what to do', rows)}"
    return f"{parts}\n"


def _briefly(ways: Sequence[str]) -> str:
    """How the first way to go on begins that has words of its own, and the links of all."""
    links = [link for way in ways for link in _LINK.findall(way)]
    own = (re.sub(r"^\{\w+\}( (?=[A-Z`])|$)", "", _LINK.sub("", way)) for way in ways)
    return " ".join([f"{_markdown(_clause(next(filter(None, own), 'See the message.')))}.", *links])


def _clause(text: str) -> str:
    """The beginning of a text, of five words or more, up to the end of a clause outside of brackets."""
    for end in re.finditer(r"\.(?= [A-Z])|[;:](?= )", text):
        head = text[: end.start()]
        if head.count(" ") >= 4 and head.count("(") == head.count(")"):
            return head
    return text.removesuffix(".")


def _markdown(text: str) -> str:
    """A text of the catalogue for a cell: `<table>` for ``{table}``."""
    parts = opened(text).replace("|", r"\|").split("`")
    safe = str.maketrans({"*": r"\*", "<": "&lt;", ">": "&gt;"})  # not every Markdown knows an escaped bracket
    return "`".join(part if odd else part.translate(safe) for part, odd in zip(parts, cycle((False, True))))


def log_table() -> str:
    """The line of every event that has one, by its name."""
    kinds = (kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event))
    rows = (_log_row(kind) for kind in kinds if kind.line and not issubclass(kind, _BY_HAND))
    return _table("event | level | meaning | fields", sorted(rows))


def _log_row(event: type[events.Event]) -> str:
    name = event.line.split()[0].replace("%(command)s", "COMMAND")
    fields = ", ".join(f"`{attribute or field}`" for attribute, field in _FIELD.findall(event.line))
    meaning = " ".join((inspect.getdoc(event) or "").partition("\n\n")[0].split())
    return f"| `{name}` | {logging.getLevelName(event.level)} | {meaning} | {fields} |"


def metrics_table() -> str:
    """The metrics; those of changes by key share a row."""
    rows = [f"| `{one.prometheus}` | {_own_label(one)} | {one.help} |" for one in METRICS if one not in _OF_CHANGES]
    changes = ", ".join(f"`{name}`" for name in OF_CHANGES)
    rows.append(f"| `lakesink_changes_..._total` | | Changes by key of committed batches: {changes}. |")
    return _table("metric | label | meaning", rows)


def _own_label(metric: Metric) -> str:
    values = ": " + ", ".join(f"`{value}`" for value in metric.known) if metric.label and metric.known else ""
    return f"`{metric.label}`{values}" if metric.label else ""


def failpoints_table() -> str:
    """The places of failpoints."""
    rows = (f"| `{name}` | {at.process} | {at.meaning} | {at.replay} |" for name, at in FAILPOINTS.items())
    return _table("name | process | when it is reached | after a death here the batch is", rows)


def actions_table() -> str:
    """The actions of failpoints."""
    return _table("action | what happens", (f"| `{action}` | {does} |" for action, does in ACTIONS.items()))


def promises_table() -> str:
    """The promises of a sink."""
    rows = (f'| <a id="{kept.anchor}"></a>`{kept.name}` | {kept.says} | `{kept.seam}` |' for kept in Promise)
    return _table("name | what a sink promises | required by", rows)


TABLES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "reference/options.md": ("options", options_table),
    "use/choose.md": ("abilities", abilities_table_markdown),
    "use/read.md": ("read options", read_options_table),
    "reference/errors.md": ("errors", errors_table),
    "reference/log.md": ("log lines", log_table),
    "operate/metrics.md": ("metrics", metrics_table),
}
"""Pages, the names of their comments, and their tables."""
