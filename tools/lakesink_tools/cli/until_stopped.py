"""What a command needs that runs until it is stopped."""

import signal
import threading
from datetime import UTC, datetime

import click

from lakesink.observe.metrics import Numbers, counting
from lakesink_catalog.words import moment, printable
from lakesink_protocol.redact import describe
from lakesink_tools.cli.output import invalid


def say(text: str) -> None:
    """A line with the time, on standard error."""
    click.echo(f"{moment(datetime.now(UTC))} {printable(text)}", err=True)


def served(place: str | None) -> Numbers:
    """The numbers that Prometheus reads at this place, or nobody without one."""
    try:
        return Numbers() if place is None else counting(place)
    except OSError as error:
        trouble = describe(error)
    raise invalid(f"The option --metrics: {place} cannot be opened ({trouble}).", "Give a port that is free.")


def stopped_by_signals() -> threading.Event:
    """Set by Ctrl-C or SIGTERM: what is under way is finished. The second signal ends the process."""
    stopped = threading.Event()

    def stop(which: int, _: object) -> None:
        stopped.set()
        signal.signal(which, signal.SIG_DFL)

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, stop)
    return stopped
