"""The page on scale: goals, curves, and what follows from the slopes, from the results of the last two runs."""

from collections.abc import Iterator
from importlib.metadata import version

from benchmarks import charts
from benchmarks.page import Document, Page, goal_of, judged
from benchmarks.scale.first import FIRST
from benchmarks.scale.paper import Paper, papers
from proof.provenance import machine
from servers.jars import ICEBERG
from testkit.generated import Generated, table

SHORT_RUN = "a short run"


def _lines(document: Document) -> list[str]:
    """The goals, a section for each part, and what was worked out from whole runs: small sizes give no slopes."""
    heads = ("goal", "first measured", "bound", "measured", "the run before", "met")
    results = {result["key"]: result for result in document["results"]}
    lines = [f"On {document['machine']}.", *_warning(document), "", *table(heads, _goals(document))]
    for key, result in results.items():
        lines += ["", f"### {key}: {result['title']}", "", *table(result["heads"], result["rows"])]
        if result["raw"]:
            lines += ["", f"![{result['title']}](../data/{_picture(key)})"]
        lines += ["", f"At `{result['commit']}`{', ' + SHORT_RUN if result['short'] else ''}."]
    for paper in papers({key: result for key, result in results.items() if not result["short"]}):
        lines += _worked_out(paper)
    return lines


def _pictures(document: Document) -> dict[str, str]:
    """Every chart by the name of its file, of the parts that have curves."""
    return {_picture(one["key"]): charts.curves(one["raw"]) for one in document["results"] if one["raw"]}


def _picture(key: str) -> str:
    return f"scale-{key}.svg"


def _warning(document: Document) -> list[str]:
    short = [result["key"] for result in document["results"] if result["short"]]
    if not short:
        return []
    return ["", f"**From {SHORT_RUN}, with small sizes, which say nothing of the goals: {', '.join(short)}.**"]


def _goals(document: Document) -> Iterator[tuple[str, ...]]:
    """A goal is met when two whole runs reached it."""
    for result in document["results"]:
        earlier = result.get("run_before", {}).get("goals", {})
        for goal in map(goal_of, result["goals"]):
            before = earlier.get(goal.name)
            bound = f"{'>=' if goal.at_least else '<='} {goal.bound:g}{goal.unit}"
            told = "" if before is None else f"{before:,.3g}{goal.unit}"
            said = SHORT_RUN if result["short"] else judged(goal, before)
            yield goal.name, FIRST.get(goal.name, ""), bound, f"{goal.measured:,.3g}{goal.unit}", told, said


def _worked_out(paper: Paper) -> list[str]:
    advice = table(("set", "because"), paper.advice)
    return ["", f"## {paper.title}", "", paper.note, "", *table(paper.heads, paper.rows), "", *advice]


def _machine() -> str:
    return f"{machine()}, PyArrow {version('pyarrow')}, DuckDB {version('duckdb')}, Iceberg {ICEBERG} for Spark"


SCALE = Page("scale.md", "scale.json", Generated("scale", "make bench"), _machine, _lines, _pictures)
