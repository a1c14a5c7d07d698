"""Arguments that are parsed before a command runs."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from lakesink.settings.parse import metrics_reader


def parsed_by(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """What click calls with an argument, to parse it; a ValueError says what was expected."""

    def callback(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def place_to_serve(text: str) -> str:
    """Host and port at which Prometheus reads what a command counts."""
    place = metrics_reader(text)
    if ":" not in place:
        raise ValueError("expected a port, such as 9464 or '0.0.0.0:9464'")
    return place


def time_of(text: str) -> datetime:
    """A time; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected a time such as 2026-11-21T05:00:12Z; without a zone it is UTC") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time
