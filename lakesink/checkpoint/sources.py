"""What a streaming source can do after a failure, and what that leaves of exactly-once. Pure: no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Replay(Enum):
    """What a source can do after a failure; the value says what becomes of exactly-once."""

    YES = "exactly once"
    MAY_LOSE = "exactly once for what the source still has; it may skip what it lost (failOnDataLoss=false)"
    UNKNOWN = "exactly once if the source gives the same rows for the same offsets"
    NO = "at most once: the source cannot give a batch again"


@dataclass(frozen=True, slots=True)
class Source:
    """One streaming source of a query.

    Attributes:
        name: As Spark names it, without options, which may hold secrets.
        replay: What it can do after a failure.
        uncommitted: True if it also gives the records of Kafka transactions that were aborted.
    """

    name: str
    replay: Replay
    uncommitted: bool = False


def guarantee(sources: Sequence[Source]) -> Replay:
    """What the weakest of the sources leaves of the promise."""
    order = list(Replay)
    return max((source.replay for source in sources), key=order.index, default=Replay.UNKNOWN)


def replay_of(name: str, fail_on_data_loss: str | None) -> Replay:
    """What a source can do after a failure.

    Args:
        name: The source as Spark names it: ``kafka``, ``rate``, ``FileSource[/in]``, ...
        fail_on_data_loss: Its option of this name, or None.
    """
    kind = name.partition("[")[0].lower()
    if kind == "kafka":
        return Replay.MAY_LOSE if (fail_on_data_loss or "").strip().lower() == "false" else Replay.YES
    if kind in {"filesource", "rate", "rate-micro-batch", "deltasource"}:
        return Replay.YES
    return Replay.NO if kind in {"socket", "textsocket"} else Replay.UNKNOWN


def gives_uncommitted(name: str, isolation_level: str | None) -> bool:
    """True of a Kafka source that is not told to leave out what transactions have not committed: Kafka's default.

    Args:
        name: As in `replay_of`.
        isolation_level: Its option ``kafka.isolation.level``, or None.
    """
    return name.lower() == "kafka" and (isolation_level or "").strip().lower() != "read_committed"
