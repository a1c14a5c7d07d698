"""The guarantee of a query, from its sources' ability to replay a batch after a failure. Pure: no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Replay(Enum):
    """A source's ability to replay a batch after a failure; the value describes the guarantee."""

    YES = "exactly once"
    MAY_LOSE = "exactly once for what the source still has; it may skip what it lost (failOnDataLoss=false)"
    UNKNOWN = "exactly once if the source gives the same rows for the same offsets"
    NO = "at most once: the source cannot give a batch again"


@dataclass(frozen=True, slots=True)
class Source:
    """One streaming source of a query.

    Attributes:
        name: Spark's name without options, which may contain secrets.
        uncommitted: True if it also returns records of aborted Kafka transactions.
        lenient: True if it gives NULL for a text that it cannot read, or leaves the row out, without a word.
    """

    name: str
    replay: Replay
    uncommitted: bool = False
    lenient: bool = False


def guarantee(sources: Sequence[Source]) -> Replay:
    """The guarantee of the weakest source."""
    order = list(Replay)
    return max((source.replay for source in sources), key=order.index, default=Replay.UNKNOWN)


def replay_of(name: str, fail_on_data_loss: str | None) -> Replay:
    """A source's ability to replay, by Spark's name for the source: ``kafka``, ``rate``, ``FileSource[/in]``, ..."""
    kind = name.partition("[")[0].lower()
    if kind == "kafka":
        return Replay.MAY_LOSE if (fail_on_data_loss or "").strip().lower() == "false" else Replay.YES
    if kind in {"filesource", "rate", "rate-micro-batch", "deltasource", "lakesink"}:
        return Replay.YES
    return Replay.NO if kind in {"socket", "textsocket"} else Replay.UNKNOWN


def gives_uncommitted(name: str, isolation_level: str | None) -> bool:
    """True for a Kafka source without ``read_committed``: by default, Kafka also returns uncommitted records."""
    return name.lower() == "kafka" and (isolation_level or "").strip().lower() != "read_committed"


def is_lenient(file_format: str, mode: str | None, *, keeps_corrupt: bool) -> bool:
    """True for a format of texts that neither stops at one that it cannot read nor keeps it in a column."""
    stops = (mode or "").strip().lower() == "failfast"
    return file_format.lower() in {"json", "csv", "xml"} and not stops and not keeps_corrupt
