"""The parts of a batch one after the other. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

WATERFALL = "waterfall"
"""Key of the workload, and name of its chart."""
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
