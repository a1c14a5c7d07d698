"""The contrast as people read it: a table for the terminal, and the published page."""

from collections.abc import Iterator

from proof.contrast.cases import CASES, EVERY_SINK, Case
from proof.contrast.result import Result
from proof.contrast.run import OURS, Contrast
from proof.contrast.sinks import MARKER, SINKS

NOT_PLAYED = "not run"
NOT_ITS_CASE = "-"

_HEAD = """# The contrast: four ways to write a stream into an Iceberg table

The same cases, data and [oracle](proof.md) over lakesink and over three others. A row is known by its source
partition and offset, so that a lost row does not hide behind a doubled one. This page is written by `python -m
proof.contrast --markdown docs/contrast.md`; nothing on it is typed by hand. What one sees on other versions may
differ: run it.
"""

_METHOD = f"""
Every stream reads JSON-lines files of a hundred rows, a file a batch, with `availableNow`; a stream that fails is
started again, up to three times, as a supervisor would. Catalogs are SQLite files, opened by PyIceberg and by
Iceberg's JDBC catalog, or Iceberg's REST reference server behind a proxy that spoils one commit. The marker is
`{MARKER}` in the snapshot's summary. Deaths are real: SIGKILL and SIGSTOP to the driver, its JVM and its Python
workers, or to the executors of a standalone cluster.

How to read it: *lost* rows are not in the table, although the stream ended well. A stream that *stopped* with an
error for a human has lost nothing: its rows are still in the source. *Orphans* are data files that no snapshot
references; they cost space until a cleaner takes them.
"""

_LIMITS = """
## What this does not show

- One machine, one run of each case, file sources. Other sources, catalogs and object stores may behave otherwise.
- A refusal costs something too: after a lost or restored checkpoint lakesink waits for a human, where another sink
  goes on, rightly or wrongly. How to go on is in [operations](operations.md).
- What the others do that lakesink does not, such as upserts and `complete` output, has no case here.
"""


def text(contrast: Contrast) -> str:
    """For the terminal: a block for each case."""
    lines = [", ".join(f"{name} {number}" for name, number in contrast.versions.items()), ""]
    for case in _played(contrast):
        lines.append(case.title)
        for sink in case.sinks:
            result = contrast.of(case.name, sink)
            if result is not None:
                lines.append(f"  {sink:<9}{result.words}{_aside(result)}")
    lines += ["", *(f"Not run: {what}" for what in contrast.not_run), *(f"BROKEN {what}" for what in contrast.broken)]
    if contrast.broken:
        lines.append("Play one again: python -m proof.contrast --case <its name>")
    lines.append(summary(contrast))
    return "\n".join(lines)


def summary(contrast: Contrast) -> str:
    """In how many cases rows were lost or doubled, by sink."""
    return f"{_common(contrast)}: " + "; ".join(f"{sink} {told}" for sink, told in tally(contrast).items())


def tally(contrast: Contrast) -> dict[str, str]:
    """By sink, of the cases that every sink has: where rows were lost, doubled or astray, and where it stopped."""
    told = {}
    for sink in SINKS:
        results = [result for case in _shared(contrast) if (result := contrast.of(case.name, sink))]
        harmed = sum(not result.is_exact for result in results)
        stopped = sum(result.is_exact and bool(result.stopped) for result in results)
        if results:
            told[sink] = f"{harmed} with rows lost, doubled or astray, {stopped} stopped"
    return told


def markdown(contrast: Contrast) -> str:
    """The page ``docs/contrast.md``."""
    lines = [_HEAD, "## What was compared", "", "| | how |", "|---|---|"]
    lines += [f"| {sink.title} | {sink.how} |" for sink in SINKS.values()]
    lines += ["", f"Versions: {', '.join(f'{name} {number}' for name, number in contrast.versions.items())}."]
    lines += [_METHOD, "## What came of it", "", *_table(contrast), "", *_well(contrast), "## The cases", ""]
    lines += [f"- **{case.title}** (`{case.name}`). {case.story}" for case in _played(contrast)]
    return "\n".join([*lines, _LIMITS])


def _table(contrast: Contrast) -> Iterator[str]:
    yield f"| case | {' | '.join(sink.title for sink in SINKS.values())} |"
    yield f"|---|{'---|' * len(SINKS)}"
    for case in _played(contrast):
        yield f"| {case.title} | {' | '.join(_cell(contrast, case, sink) for sink in SINKS)} |"
    totals = tally(contrast)
    yield f"| *{_common(contrast)}* | {' | '.join(totals.get(sink, NOT_PLAYED) for sink in SINKS)} |"


def _cell(contrast: Contrast, case: Case, sink: str) -> str:
    result = contrast.of(case.name, sink)
    if result is None:
        return NOT_PLAYED if sink in case.sinks else NOT_ITS_CASE
    words = result.words if result.is_exact else f"**{result.words}**"
    return f"{words}{_aside(result)} [{result.found} of {result.expected}]"


def _aside(result: Result) -> str:
    return f" ({'; '.join(result.asides)})" if result.asides else ""


def _well(contrast: Contrast) -> Iterator[str]:
    """Where another sink goes on, rightly, and lakesink does not."""
    better = []
    for case in _played(contrast):
        ours = contrast.of(case.name, OURS)
        if ours is None or not ours.stopped:
            continue
        others = (contrast.of(case.name, sink) for sink in SINKS if sink != OURS)
        names = [SINKS[other.sink].title for other in others if other and other.is_exact and not other.stopped]
        if names:
            better.append(f"- {case.title}: {', '.join(names)}.")
    if better:
        yield "In these cases others go on with each row once, where lakesink stops and asks:"
        yield ""
        yield from better
        yield ""


def _played(contrast: Contrast) -> list[Case]:
    names = {result.case for result in contrast.results}
    return [case for case in CASES if case.name in names]


def _shared(contrast: Contrast) -> list[Case]:
    return [case for case in _played(contrast) if case.sinks == EVERY_SINK]


def _common(contrast: Contrast) -> str:
    return f"of {len(_shared(contrast))} cases that every sink has"
