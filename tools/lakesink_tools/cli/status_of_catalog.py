"""``status`` without a table: every table and sink of a catalog. A table that cannot be loaded stops nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import SinkState, sinks
from lakesink_catalog.tables.listing import Found, tables_in
from lakesink_catalog.tables.tables import load_to_read
from lakesink_catalog.words import as_arguments, counted, moment, number, span
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.redact import redact
from lakesink_tools.cli.output import NOT_CHECKED, NOT_WELL, OK, Report, plain, progress
from lakesink_tools.cli.sink_health import STALE, SinkHealth, document_of, health_of, stale_hint
from lakesink_tools.past.records import key_of, sink_label

_COLUMNS = ("table", "sink", "branch", "last batch>", "committed", "ago>", "rows>", "standing")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """A table with its sinks, or the error that hides them; also of a namespace that could not be listed."""

    name: str
    sinks: tuple[tuple[SinkState, SinkHealth], ...] = ()
    error: LakesinkError | None = None


def status_of_catalog(named: str | None, max_age: timedelta | None, *, limit: int) -> Report:
    """How each sink in the first tables of a catalog stands; without a name, of the default catalog."""
    catalog = connect(named, create=False)
    now = datetime.now(UTC)
    listed = list(tables_in(catalog))
    seen = list(_looked_at(catalog, listed[:limit], max_age, now))
    return _report(catalog.name, seen, len(listed) - len(seen), max_age, now, next_step=_next(seen, named))


def _looked_at(catalog: Catalog, listed: Sequence[Found], max_age: timedelta | None, now: datetime) -> Iterator[Seen]:
    with progress() as say:
        for place, (name, trouble) in enumerate(listed, 1):
            say(f"{place:,} of {counted(len(listed), 'table')}: {plain(name)}")
            if trouble is not None:
                yield Seen(name, error=trouble)
                continue
            try:
                states = sinks(load_to_read(catalog, name))
            except LakesinkError as error:
                yield Seen(name, error=error)
            else:
                yield Seen(name, tuple((state, health_of(state, max_age, now)) for state in states))


def _report(
    catalog: str, seen: Sequence[Seen], hidden: int, max_age: timedelta | None, now: datetime, *, next_step: str
) -> Report:
    unread = [one for one in seen if one.error is not None]
    every = [sink for one in seen for sink in one.sinks]
    stale = [
        stale_hint(plain(state.sink), state.committed_at, max_age, now)
        for state, standing in every
        if standing.word == STALE
    ]
    return Report(
        document={
            "catalog": catalog,
            "tables": [
                {"table": one.name, "sinks": [document_of(state, standing, now) for state, standing in one.sinks]}
                for one in seen
                if one.error is None
            ],
            "unreadable": [
                {"name": one.name, "code": one.error.code, "what": redact(one.error.what)}
                for one in seen
                if one.error is not None
            ],
            "not_looked_at": hidden,
        },
        title=f"{catalog}: {counted(len(every), 'sink')} in {number(len(_written(seen)))} of"
        f" {counted(len(seen) - len(unread), 'table')}",
        columns=_COLUMNS,
        rows=[row for one in seen if one.error is None for row in _rows(one, now)],
        hints=[redact(hint) for hint in (*_notes(seen, unread, hidden), *stale[:_SHOWN], next_step)],
        exit_code=_exit_code(every, unread),
    )


def _exit_code(every: Sequence[tuple[SinkState, SinkHealth]], unread: Sequence[Seen]) -> int:
    if any(not standing.is_well for _, standing in every):
        return NOT_WELL
    if unread:
        return NOT_CHECKED
    return OK if every else NOT_WELL


def _rows(one: Seen, now: datetime) -> Iterator[list[str]]:
    if not one.sinks:
        yield [one.name, *("-" for _ in _COLUMNS[2:]), "no sink"]
    for state, standing in one.sinks:
        yield [
            one.name,
            sink_label(key_of(state)),
            state.branch,
            number(state.batch_id),
            moment(state.committed_at),
            "-" if state.committed_at is None else span(now - state.committed_at),
            number(state.rows),
            standing.word,
        ]


def _notes(seen: Sequence[Seen], unread: Sequence[Seen], hidden: int) -> Iterator[str]:
    for one in unread[:_SHOWN]:
        assert one.error is not None
        yield f"{plain(one.name)} could not be read: [{one.error.code}] {one.error.what}"
    if len(unread) > _SHOWN:
        yield f"{number(len(unread) - _SHOWN)} more could not be read; --output json has all."
    if hidden:
        yield f"Not looked at: {counted(hidden, 'table')} after {plain(seen[-1].name)}; --limit looks at more."


def _written(seen: Sequence[Seen]) -> list[Seen]:
    return [one for one in seen if one.sinks]


def _next(seen: Sequence[Seen], named: str | None) -> str:
    written = _written(seen)
    if not written:
        return (
            "This catalog has no table that a lakesink stream has written to; a dropped table is not shown."
            " Next: check --catalog, or start with lakesink init."
        )
    troubled = [one for one in written if any(standing.word != "ok" for _, standing in one.sinks)]
    return f"Next: lakesink status {as_arguments((troubled or written)[0].name, named)}"
