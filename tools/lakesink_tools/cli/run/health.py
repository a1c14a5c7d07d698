"""The command ``health``: how the sinks of a table stand, in one word for a probe. Only reads the table."""

from datetime import UTC, datetime, timedelta

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.words import age, as_arguments, number
from lakesink_tools.cli.output import NOT_WELL, OK, Report, plain
from lakesink_tools.cli.sink_health import Health, document_of, health_in, stale_hints, worst
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.records import key_of

_COLUMNS = ("sink", "branch", "last batch>", "ago>", "health")


def health(table: str, catalog: str | None, max_age: timedelta | None, sink: str | None) -> Report:
    """Exit code 1: no sink, one whose next batch would be refused, or one that is older than --max-age."""
    now = datetime.now(UTC)
    every = list(health_in(load_to_read(connect(catalog, create=False), table), max_age, now))
    found = [one for one in every if sink in (None, one[0].sink)]
    word = worst(word for _, _, word in found)
    hints = stale_hints(((state, standing) for state, standing, _ in found), max_age, now)
    if not found:
        others = ", ".join(dict.fromkeys(plain(state.sink) for state, _, _ in every))
        hints = [f"It has no sink {sink}. Its sinks: {others}." if others else "No sink has committed to it."]
    return Report(
        document={
            "table": table,
            "health": word,
            "sinks": [document_of(state, standing, now) | {"health": word} for state, standing, word in found],
        },
        title=f"{table}: {word}",
        columns=_COLUMNS,
        rows=[
            [key_of(state).label, state.branch, number(state.batch_id), age(state.committed_at, now), word]
            for state, _, word in found
        ],
        hints=[] if word is Health.OK else [*hints, f"Next: lakesink status {as_arguments(table, catalog)}"],
        exit_code=OK if found and all(standing.is_well for _, standing, _ in found) else NOT_WELL,
    )
