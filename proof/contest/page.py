"""The contest as people read it: for the terminal, and the tables of its two pages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from proof.contest.case import INTO_TABLES, Case
from proof.contest.cases import CASES, CONTRAST, GUARANTEES, PARTED
from proof.contest.result import Result
from proof.contest.run import Contest, promised
from proof.contest.sinks import OURS, SINKS, Sink
from testkit.generated import Generated
from testkit.generated import table as _table

GENERATED = Generated("contest", "make contest")
NOT_RUN = "not run"
NEXT = "Next: docs/evidence/contrast.md and docs/evidence/guarantee-table.md say what to take from it."
NOT_ITS_CASE = "-"


def text(contest: Contest) -> str:
    """For the terminal: a block for each case."""
    lines = [_versions(contest)]
    for case in _played(contest, CASES.values()):
        lines += ["", case.title]
        for result in contest.only([case]).results:
            lines.append(f"  {result.sink:<16}{_box(result)}")
            lines += [f"    killed when {result.of.points[blow.point]}: {blow.words}" for blow in result.blows]
            lines += [f"    a reader saw {result.example}"] if result.example else []
    lines += ["", *(f"Not run: {what}" for what in contest.not_run), *(f"BROKEN {what}" for what in contest.broken)]
    if contest.broken:
        lines.append("Play one again: python -m proof.contest --case NAME --sink NAME")
    told = [f"{sink} {told}" for sink, told in tally(contest).items()]
    lines += [f"{_common(contest)}: {'; '.join(told)}."] if told else []
    lines.append(f"{len(contest.results)} results in {contest.seconds:.0f} s. {NEXT}")
    return "\n".join(lines)


def contrast(contest: Contest) -> list[str]:
    """The tables of ``docs/evidence/contrast.md``."""
    sinks = [SINKS[name] for name in INTO_TABLES]
    totals = tally(contest)
    return [
        *_table(["sink", "how"], ([sink.title, sink.how] for sink in sinks)),
        *("", f"Versions: {_versions(contest)}.", "", "## What came of it", ""),
        *_table(
            ["case", *(sink.title for sink in sinks)],
            [
                *([case.title, *(_bold(contest, case, sink) for sink in sinks)] for case in _played(contest, CONTRAST)),
                [f"*{_common(contest)}*", *(totals.get(sink.name, NOT_RUN) for sink in sinks)],
            ],
        ),
        *("", "In these cases others go on with each row once, where lakesink stops and asks:", ""),
        *_well(contest),
        *("", "## The cases", ""),
        *(f"- **{case.title}** (`{case.name}`). {case.story}" for case in _played(contest, CONTRAST)),
    ]


def guarantees(contest: Contest) -> list[str]:
    """The tables of ``docs/evidence/guarantee-table.md``."""
    cases = GUARANTEES[::-1]
    sinks = [SINKS[name] for name in GUARANTEES[0].sinks]
    titles = [case.title for case in cases]
    found = {sink.name: [contest.result(case.name, sink.name) for case in cases] for sink in sinks}
    went_back = [one for one in contest.results if one.went_back]
    parted = [one for one in contest.results if one.measured is not promised(one)]
    return [
        *_table(["sink", *titles], ([sink.title, *map(_box, found[sink.name])] for sink in sinks)),
        *("", "## The sinks", ""),
        *_table(["sink", "how", "code"], ([sink.title, sink.how, _link(sink)] for sink in sinks)),
        *("", "## Kill by kill", ""),
        *_table(
            ["sink", "killed when", *titles],
            (
                [sink.title, meaning, *(_became(result, point) for result in found[sink.name])]
                for sink in sinks
                for point, meaning in sink.points.items()
            ),
        ),
        *("", "## The passing inconsistency", ""),
        *([f"- {_named(one)}: a reader saw {one.example}." for one in went_back] or ["No reader saw it."]),
        *("", "## Where reality and theory part", ""),
        *(
            [f"- {_named(one)}: {PARTED.get((one.sink, one.case), 'nobody knows why')}" for one in parted]
            or ["Nowhere."]
        ),
        *("", f"{_extent(contest)}; {_versions(contest)}."),
    ]


@dataclass(frozen=True, slots=True)
class Page:
    """A page that shows some of the cases.

    Attributes:
        name: Of the page in ``docs/evidence``.
        figures: Of what it shows, in ``docs/data``.
        cases: That it shows.
        tables: Makes its lines.
    """

    name: str
    figures: str
    cases: Sequence[Case]
    tables: Callable[[Contest], list[str]]

    def renewed(self, before: str, contest: Contest) -> str:
        """The page with the tables of a contest in the place of those that it has."""
        return GENERATED.renewed(before, GENERATED.wrapped(["", *self.tables(contest), ""]))


PAGES = (
    Page("contrast.md", "contrast.json", CONTRAST, contrast),
    Page("guarantee-table.md", "guarantees.json", GUARANTEES, guarantees),
)


def tally(contest: Contest) -> dict[str, str]:
    """By sink, of the cases that every sink has: where rows were lost, doubled or astray, and where it stopped."""
    told = {}
    for sink in INTO_TABLES:
        results = [result for case in _shared(contest) if (result := contest.result(case.name, sink))]
        harmed = sum(not result.is_exact for result in results)
        stopped = sum(result.is_exact and bool(result.stopped) for result in results)
        if results:
            told[sink] = f"{harmed} with rows lost, doubled or astray, {stopped} stopped"
    return told


def _box(result: Result | None) -> str:
    """How a case ended; of a sink that is judged by its promise the verdict."""
    if result is None:
        return NOT_RUN
    if not result.blows:
        return f"{result.words}{result.aside} [{result.found} of {result.expected}]"
    theory = "" if result.measured is promised(result) else f" (theory: {promised(result).value})"
    sent = sum(blow.sent for blow in result.blows)
    told = [f"{len(result.blows)} kills, {result.lost} lost and {result.doubled} doubled of {sent}"]
    told += [f"{result.in_part} batches seen in part"] if result.in_part else []
    told += ["older values came back"] if result.went_back else []
    return f"**{result.measured.value}{theory}**: {', '.join(told)}"


def _bold(contest: Contest, case: Case, sink: Sink) -> str:
    """As `_box`, what should not be in bold."""
    result = contest.result(case.name, sink.name)
    if result is None and sink.name not in case.sinks:
        return NOT_ITS_CASE
    box = _box(result)
    return box if result is None or result.is_exact else box.replace(result.words, f"**{result.words}**")


def _became(result: Result | None, point: str) -> str:
    return next((blow.words for blow in (result.blows if result else ()) if blow.point == point), NOT_RUN)


def _well(contest: Contest) -> Iterator[str]:
    """Where another sink goes on, rightly, and lakesink does not."""
    for case in _played(contest, CONTRAST):
        results = contest.only([case]).results
        if any(result.sink == OURS and result.stopped for result in results):
            names = [result.of.title for result in results if result.is_exact and not result.stopped]
            if names:
                yield f"- {case.title}: {', '.join(names)}."


def _named(result: Result) -> str:
    return f"{result.of.title}, {CASES[result.case].title}"


def _link(sink: Sink) -> str:
    return f"[{sink.code.rpartition('/')[2]}](../../{sink.code})"


def _extent(contest: Contest) -> str:
    kills = sum(len(result.blows) for result in contest.results)
    drivers = sum({result.sink: len(result.blows) for result in contest.results}.values())
    return f"{len(contest.results)} cells, {kills} streams killed in {drivers} drivers"


def _played(contest: Contest, cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if contest.only([case]).results]


def _shared(contest: Contest) -> list[Case]:
    return [case for case in _played(contest, CONTRAST) if case.sinks == INTO_TABLES]


def _common(contest: Contest) -> str:
    return f"of {len(_shared(contest))} cases that every sink has"


def _versions(contest: Contest) -> str:
    return ", ".join(f"{name} {number}" for name, number in contest.versions.items())
