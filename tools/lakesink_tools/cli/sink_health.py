"""How a sink stands, in one word: the same in ``status`` of a table, of a directory and of a catalog."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from lakesink_catalog.read.history import SinkState
from lakesink_catalog.words import ago
from lakesink_tools.audit.finding import awaits_replay
from lakesink_tools.cli.rows import parsed_offsets

STALE = "stale"


@dataclass(frozen=True, slots=True)
class SinkHealth:
    """``ok``, ``unproven``, ``stale``, or what the next batch would be refused for."""

    word: str
    is_well: bool


def health_of(state: SinkState, max_age: timedelta | None, now: datetime) -> SinkHealth:
    """How a sink of a table stands."""
    if state.trouble is not None and not awaits_replay(state):
        return SinkHealth(state.trouble.value, is_well=False)
    silent = staleness(state.committed_at, state.silence_limit, max_age, now)
    return silent or SinkHealth("unproven" if state.unverifiable else "ok", is_well=True)


def staleness(
    last: datetime | None, usual: timedelta | None, max_age: timedelta | None, now: datetime
) -> SinkHealth | None:
    """Only an age that the user set is a problem: a stream that was stopped on purpose is silent too."""
    if max_age is not None:
        return SinkHealth(STALE, is_well=False) if last is None or now - last > max_age else None
    if last is None or usual is None or now - last <= usual:
        return None
    return SinkHealth(STALE, is_well=True)


def document_of(state: SinkState, standing: SinkHealth, now: datetime) -> dict[str, Any]:
    """A sink for JSON."""
    facts = asdict(state)
    del facts["trouble"], facts["unverifiable"], facts["silence_limit"]
    return facts | {
        "offsets": parsed_offsets(state.offsets),
        "age_seconds": None if state.committed_at is None else round((now - state.committed_at).total_seconds()),
        "stale_after_seconds": None if state.silence_limit is None else round(state.silence_limit.total_seconds()),
        "standing": standing.word,
    }


def prepared_hint(sink: str, batch_id: int) -> str:
    """What becomes of a batch whose driver wrote all files, and died before the commit or is about to commit."""
    return (
        f"Batch {batch_id} of sink {sink} is prepared and not committed: readers do not see its rows. If its query does"
        " not run, start it again: the restart commits the prepared files. If they are missing or too old, it writes"
        " the batch again."
    )


def stale_hint(sink: str, last: datetime | None, max_age: timedelta | None, now: datetime) -> str:
    """What a stale sink means, and what to look at."""
    if max_age is not None or last is None:
        return f"Sink {sink} has not committed for longer than --max-age. Next: check its query."
    return (
        f"Sink {sink} has been silent for longer than usual, its last batch was {ago(now - last)}. Next: check its"
        " query. Only --max-age SPAN makes a stale sink exit with 1."
    )
