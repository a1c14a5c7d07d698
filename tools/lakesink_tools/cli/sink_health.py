"""How a sink stands, in one word: the same in ``status`` of a table, of a directory and of a catalog.

``health`` and ``watch`` have fewer words, for probes: see `Health`.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

from pyiceberg.table import Table

from lakesink_catalog.read.history import SinkState, sinks
from lakesink_catalog.tables.locations import metadata_location
from lakesink_catalog.words import ago
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.quality import REPLAY
from lakesink_protocol.redact import describe
from lakesink_tools.audit.finding import awaits_replay
from lakesink_tools.cli.output import plain
from lakesink_tools.cli.rows import parsed_offsets
from lakesink_tools.past.lean import local_path
from lakesink_tools.past.records import key_of

if TYPE_CHECKING:
    from lakesink_tools.audit.leftovers import PreparedRecord

STALE, UNPROVEN = "stale", "unproven"
_RECORD = re.compile(r"([0-9]{1,19})-[A-Za-z0-9]{1,64}\.json")


class Health(StrEnum):
    """How a table's sinks stand, the best first. Only the last two are a problem, the last but one with --max-age."""

    OK = "ok"
    DEGRADED = "degraded"
    BEHIND = "behind"
    STALE = "stale"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SinkHealth:
    """``ok``, ``unproven``, ``stale``, or what the next batch would be refused for."""

    word: str
    is_well: bool


def health_of(state: SinkState, max_age: timedelta | None, now: datetime) -> SinkHealth:
    """How a sink of a table stands. Replays of dead letters are never stale: they come when somebody asks for them."""
    if state.trouble is not None and not awaits_replay(state):
        return SinkHealth(state.trouble.value, is_well=False)
    silent = None if state.sink.startswith(REPLAY) else staleness(state.committed_at, state.silence_limit, max_age, now)
    return silent or SinkHealth(UNPROVEN if state.unverifiable else "ok", is_well=True)


def staleness(
    last: datetime | None, usual: timedelta | None, max_age: timedelta | None, now: datetime
) -> SinkHealth | None:
    """Only an age that the user set is a problem: a stream that was stopped on purpose is silent too."""
    longest = usual if max_age is None else max_age
    is_silent = max_age is not None if last is None else longest is not None and now - last > longest
    return SinkHealth(STALE, is_well=max_age is None) if is_silent else None


def health_in(table: Table, max_age: timedelta | None, now: datetime) -> Iterator[tuple[SinkState, SinkHealth, Health]]:
    """How each sink stands, and in a word for probes."""
    states = sinks(table)
    prepared = {one.key for one in waiting_in(table, states)[0]}
    for state in states:
        standing = health_of(state, max_age, now)
        if standing.word == STALE:
            word = Health.STALE
        elif not standing.is_well:
            word = Health.REFUSED
        elif key_of(state) in prepared:
            word = Health.BEHIND
        else:
            word = Health.DEGRADED if standing.word == UNPROVEN or awaits_replay(state) else Health.OK
        yield state, standing, word


def worst(words: Iterator[Health]) -> Health:
    """That of the sink which stands worst; a table without a sink is stale."""
    return max(words, key=list(Health).index, default=Health.STALE)


def document_of(state: SinkState, standing: SinkHealth, now: datetime) -> dict[str, Any]:
    """A sink for JSON."""
    facts: dict[str, Any] = {}
    for name, value in asdict(state).items():
        facts |= value.told if name == "counts" else {name: value}
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


def stale_hints(found: Iterable[tuple[SinkState, SinkHealth]], max_age: timedelta | None, now: datetime) -> list[str]:
    """The same for each sink of tables that is stale."""
    stale = (state for state, standing in found if standing.word == STALE)
    return [stale_hint(plain(state.sink), state.committed_at, max_age, now) for state in stale]


def waiting_in(table: Table, states: list[SinkState]) -> "tuple[list[PreparedRecord], list[str]]":
    """Prepared batches, and why they could not be looked for: the other lines need only the metadata."""
    try:
        if has_no_records(table, states):
            return [], []
        from lakesink_tools.audit.leftovers import waiting_batches  # PyArrow, and all that reads records

        return waiting_batches(table, states) or [], []
    except CatalogError as error:
        why = error.what.rstrip(".")
    except OSError as error:
        why = describe(error, table.io.properties)
    return [], [f"Prepared batches were not looked for: {why}."]


def has_no_records(table: Table, states: Iterable[SinkState]) -> bool:
    """True if no prepared record of a local table waits, as between two batches; found without PyArrow.

    Every record is then, by its name, by which a stream finds it, of a batch that its sink has passed. False if one may
    wait, or if that is not certain. Raises `CatalogError` if a property of the table names a folder that is not
    allowed.
    """
    folder = local_path(metadata_location(table), table.io.properties)
    if folder is None:
        return False
    batches = ((key_of(state).record_folder, state.batch_id) for state in states)
    passed = {f"{folder}/{place}": batch_id for place, batch_id in batches if batch_id is not None}
    top = f"{folder}/lakesink"
    try:
        os.lstat(top)
        found = os.walk(top, onerror=_refuse, followlinks=True)
        records = ((_RECORD.fullmatch(name), passed.get(place, -1)) for place, _, names in found for name in names)
        return all(record is not None and int(record[1]) <= last for record, last in records)
    except FileNotFoundError as error:
        return bool(error.filename == top)  # no batch was ever prepared
    except OSError:
        return False


def _refuse(error: OSError) -> NoReturn:
    raise error
