"""What the last runs found, for the documents: pages, their charts and their data."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import charts
from benchmarks.fall import WATERFALL
from benchmarks.result import Goal
from proof.provenance import ROOT, commit, machine
from testkit.generated import Generated, table

DOCS = ROOT / "docs"
DATA = DOCS / "data"

_DRAWN: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    WATERFALL: (f"{WATERFALL}.svg", charts.waterfall),
    "W20": ("day.svg", charts.day),
}
"""The charts of single works: file and program."""
Document = Mapping[str, Any]
"""``machine`` in words, and ``results``: each a `benchmarks.result.Result` as JSON, its ``commit`` and ``rounds``.

``run_before`` has what was measured for its goals by the run before, at the commit of that run.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that shows what some works found.

    Attributes:
        name: Of the page in ``docs/evidence``.
        figures: What it shows, in ``docs/data``.
        generated: Its place for figures.
        machine: Where they are from, in words.
        lines: Makes them.
        pictures: Draws every chart of the works that have run, by the name of its file.
    """

    name: str
    figures: str
    generated: Generated
    machine: Callable[[], str]
    lines: Callable[[Document], list[str]]
    pictures: Callable[[Document], dict[str, str]]

    @property
    def text(self) -> str:
        """The whole page."""
        return (DOCS / "evidence" / self.name).read_text()

    @property
    def known(self) -> dict[str, Any]:
        """What it shows."""
        found: dict[str, Any] = json.loads((DATA / self.figures).read_text())
        return found

    def as_markdown(self, document: Document) -> str:
        """Its figures."""
        return self.generated.wrapped(["", *self.lines(document), ""])

    def write(self, now: Document) -> None:
        """Put the figures into it, the charts and the data into a folder of their own."""
        known = comparable(self.known, now)
        document = together(known, now, commit("lakesink", "catalog", "protocol", "benchmarks"))
        (DATA / self.figures).write_text(json.dumps(document, indent=1) + "\n")
        for name, drawn in self.pictures(document).items():
            (DATA / name).write_text(drawn)
        renewed = self.generated.renewed(self.text, self.as_markdown(document))
        (DOCS / "evidence" / self.name).write_text(renewed)


def comparable(before: Document, now: Document) -> dict[str, Any]:
    """What was known, without the runs of another length: a short run says nothing of a whole one."""
    lengths = {result["key"]: result.get("short", False) for result in now["results"]}
    kept = [one for one in before["results"] if lengths.get(one["key"], False) == one.get("short", False)]
    return {**before, "results": kept}


def together(before: Document, now: Document, commit: str) -> dict[str, Any]:
    """What was known, with the workloads that have run now in the place of their earlier runs."""
    known = {result["key"]: result for result in before["results"]}
    for result in now["results"]:
        rounds = result["rounds"] or now["rounds"]
        told = {"commit": commit, "rounds": rounds, "run_before": _as_run_before(known.get(result["key"]))}
        known[result["key"]] = {**result, **told}
    return {"machine": now["machine"], "results": [known[key] for key in sorted(known)]}


def _as_run_before(result: Mapping[str, Any] | None) -> dict[str, Any]:
    if result is None:
        return {}
    return {"commit": result["commit"], "goals": {goal["name"]: goal["measured"] for goal in result["goals"]}}


def _lines(document: Document) -> list[str]:
    """The goals, and every table."""
    heads = ("goal", "bound", "measured", "the run before", "reached")
    lines = [f"On {document['machine']}.", "", *table(heads, _goals(document))]
    for result in document["results"]:
        lines += ["", f"### {result['key']}: {result['title']}", "", *table(result["heads"], result["rows"])]
        if result["key"] in _DRAWN:
            lines += ["", f"![{result['title']}](../data/{_DRAWN[result['key']][0]})"]
        lines += ["", f"At `{result['commit']}`, {result['rounds']} rounds where there are rounds."]
    return lines


def _pictures(document: Document) -> dict[str, str]:
    """Every chart by the name of its file, of the workloads that have run."""
    results = document["results"]
    drawn = ((*_DRAWN[one["key"]], one["raw"]) for one in results if one["key"] in _DRAWN)
    found = {name: draw(raw) for name, draw, raw in drawn}
    if compared := [one for one in results if charts.measures_speed(one)]:
        found["speed.svg"] = charts.speed(compared)
    return found


def _goals(document: Document) -> Iterator[tuple[str, ...]]:
    """A goal counts when two runs reached it."""
    for result in document["results"]:
        earlier = result.get("run_before", {}).get("goals", {})
        for goal in map(goal_of, result["goals"]):
            before = earlier.get(goal.name)
            sign, unit = ">=" if goal.at_least else "<=", goal.unit
            told, said = "" if before is None else f"{before:.2f}{unit}", judged(goal, before)
            yield goal.name, f"{sign} {goal.bound:g}{unit}", f"{goal.measured:.2f}{unit}", told, said


def judged(goal: Goal, before: float | None) -> str:
    """Whether this run and the run before, if there was one, reached a goal."""
    reached = [goal.reached, *([] if before is None else [replace(goal, measured=before).reached])]
    return "**no**" if not any(reached) else "yes" if reached == [True, True] else "once"


def goal_of(found: Mapping[str, Any]) -> Goal:
    """A goal that JSON has."""
    return Goal(**{name: value for name, value in found.items() if name != "reached"})


BENCH = Page("benchmarks.md", "bench.json", Generated("bench", "make bench"), machine, _lines, _pictures)
UPKEEP = Page("maintenance.md", "maintenance.json", Generated("bench", "make bench"), machine, _lines, _pictures)
