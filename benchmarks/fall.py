"""The parts of a batch one after the other, as figures and as a picture. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bars import BLACK, BLUE, BROWN, GREEN, GREY, LOW, Bar, Heading, svg

WATERFALL = "waterfall"
"""Key of the workload, and name of its picture."""
ADD_BATCH, WHOLE = "addBatch", "triggerExecution"
BEFORE, AFTER = ("latestOffset", "walCommit", "getBatch", "queryPlanning"), ("commitOffsets",)
"""What Spark does around a sink, in its order, by the names of its progress."""
REST = "the rest"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a whole.

    Attributes:
        name: What it is.
        milliseconds: How long it takes; less than nothing for a rest that other parts have in them twice.
        start: When it begins.
    """

    name: str
    milliseconds: float
    start: float


def fall(parts: Mapping[str, float], whole: float, start: float = 0.0) -> list[Part]:
    """Parts one after the other, and the rest, so that the last one ends where the whole does.

    Args:
        parts: Milliseconds of each, in their order.
        whole: Of all of them, as it was measured by itself.
        start: When the first one begins.
    """
    found = []
    for name, milliseconds in [*parts.items(), (REST, whole - sum(parts.values()))]:
        found.append(Part(name, milliseconds, start))
        start += milliseconds
    return found


def around(spark: Mapping[str, float]) -> list[Part]:
    """A whole micro-batch as Spark tells of it, `ADD_BATCH` in one piece.

    Args:
        spark: Milliseconds by the names of Spark's progress.
    """
    return fall({name: spark.get(name, 0.0) for name in (*BEFORE, ADD_BATCH, *AFTER)}, spark[WHOLE])


def within(spark: Mapping[str, float], steps: Mapping[str, float]) -> list[Part]:
    """What a sink does in `ADD_BATCH`; the rest is Spark's way into the function and out of it."""
    [whole] = (part for part in around(spark) if part.name == ADD_BATCH)
    return fall(steps, whole.milliseconds, whole.start)


def picture(loads: Sequence[Mapping[str, Any]]) -> str:
    """Every part as a bar that begins where the one before it ends; a load has a scale of its own.

    Args:
        loads: Each a `benchmarks.waterfall.Load` as JSON.
    """
    heading = Heading("One micro-batch, step by step: Spark's own in grey, the rows' in blue, what is left in brown")
    return svg([heading, *(line for load in loads for line in _lines(load))], line=LOW)


def _lines(load: Mapping[str, Any]) -> Iterator[Bar | Heading]:
    first, *others = load["streams"]
    longest = max(part.start + part.milliseconds for stream in load["streams"] for part in around(stream["spark"]))
    yield Heading(load["title"])
    for part in around(first["spark"]):
        if part.name == ADD_BATCH:
            yield from _of_sink(first, longest)
        else:
            yield _bar(part.name, part, GREY, longest)
    yield Heading("Beside it")
    for stream in others:
        yield from _of_sink(stream, longest)


def _of_sink(stream: Mapping[str, Any], longest: float) -> Iterator[Bar]:
    [whole] = (part for part in around(stream["spark"]) if part.name == ADD_BATCH)
    yield _bar(f"{stream['sink']}: {ADD_BATCH}", whole, BLACK, longest)
    if stream["steps"]:
        for step in within(stream["spark"], stream["steps"]):
            yield _bar(step.name, step, _colour(step), longest)


def _bar(label: str, part: Part, colour: str, longest: float) -> Bar:
    length, start = max(part.milliseconds, 0.0) / longest, part.start / longest
    return Bar(label, f"{part.milliseconds:.1f} ms", colour, length, start)


def _colour(step: Part) -> str:
    if step.name == REST:
        return BROWN
    return BLUE if step.name.startswith("write") else GREEN
