"""The one table that the proof ends in, for the terminal and for the documents. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from testkit.generated import Generated
from testkit.generated import table as of_lines

GENERATED = Generated("proof", "make prove")

HIGHLIGHTS = {
    "rows expected / lost / doubled": "rows expected, lost and doubled in simulated worlds",
    "SIGKILLs by point": "SIGKILLs of real processes",
    "seeded bugs seen by the simulator and by real processes": "seeded bugs that the tests caught",
    "states of the formal model": "explored states of the formal model",
}
"""The four lines that the README shows, in its words."""

Document = Mapping[str, Any]
"""``machine`` in words, and ``parts`` by name: each its ``commit``, ``seconds``, ``lines`` and how many ``broken``."""


def table(document: Document) -> Iterator[tuple[str, str]]:
    """All lines: what, and how much."""
    parts = document["parts"]
    for part in parts.values():
        yield from ((what, figure) for what, figure in part["lines"])
    yield "promises broken", f"{sum(part['broken'] for part in parts.values()):,}"


def as_text(document: Document) -> str:
    """For the terminal."""
    lines = list(table(document))
    widest = max(len(what) for what, _ in lines)
    return "\n".join(f"{what:<{widest}}  {figure}" for what, figure in lines)


def as_markdown(document: Document) -> str:
    """For the documents."""
    runs = (f"{name} {part['seconds']:,} s at `{part['commit']}`" for name, part in document["parts"].items())
    lines = of_lines(("what", "figure"), table(document))
    return GENERATED.wrapped(["", *lines, "", f"On {document['machine']}: {', '.join(runs)}.", ""])


def highlights(document: Document) -> str:
    """For the README: of each line the figure alone, without its parts."""
    figures = dict(table(document))
    return GENERATED.wrapped(f"- {words}: {figures[what].split(':')[0]}" for what, words in HIGHLIGHTS.items())


def together(before: Document, now: Document, order: Mapping[str, object]) -> dict[str, Any]:
    """What was known, with the parts that have run now in the place of their earlier runs.

    Args:
        before: The earlier document.
        now: The parts that have run.
        order: Names of all parts, in the order of the table.
    """
    parts = {**before["parts"], **now["parts"]}
    return {"machine": now["machine"], "parts": {name: parts[name] for name in order if name in parts}}
