"""The log: the one listener that writes log lines. Each event has its own."""

import logging
import sys
from collections.abc import Iterator
from typing import IO

from lakesink_protocol.events import BatchEnded, Event

logger = logging.getLogger("lakesink")


def log(event: Event) -> None:
    """Write the line of an event, if it has one."""
    if event.line:
        logger.log(event.severity, event.line, event.facts)


# Beside a terminal that shows batches itself


def log_beside_terminal(event: Event) -> None:
    """As `log`, but without what Python prints by itself where no logging is configured: the terminal shows it."""
    if not isinstance(event, BatchEnded) or is_configured():
        log(event)


def is_configured() -> bool:
    """True if the program configured logging, for lakesink or for all."""
    return logger.hasHandlers()


def shows(event: Event, *places: IO[str] | None) -> bool:
    """True if a handler that the user configured writes the line of this event to one of these places."""
    handlers = [one for one in _handlers() if _takes(one, event)]
    return any(_writes_to(handler, place) for handler in handlers for place in places if place is not None)


def is_written(event: Event) -> bool:
    """True if the log has the line of this event in any place; where no logging is configured, Python prints it."""
    last = logging.lastResort if sys.stderr is not None and not sys.stderr.closed else None
    return any(_takes(one, event) for one in (list(_handlers()) or filter(None, [last])))


def _takes(handler: logging.Handler, event: Event) -> bool:
    if isinstance(handler, logging.NullHandler):
        return False
    record = logger.makeRecord(logger.name, event.severity, "", 0, "", (), None)
    passes = all(one.filter(record) for one in (logger, handler))
    return passes and event.severity >= handler.level and logger.isEnabledFor(event.severity)


def _handlers() -> Iterator[logging.Handler]:
    at: logging.Logger | None = logger
    while at is not None:
        yield from at.handlers
        at = at.parent if at.propagate else None


def _writes_to(handler: logging.Handler, place: IO[str]) -> bool:
    stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    return stream is not None and (stream is place or (stream.isatty() and place.isatty()))
