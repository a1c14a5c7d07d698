"""What an event is, and who receives it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, dataclass_transform

from lakesink_protocol.redact import describe

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
"""Levels of lines, with the numbers of `logging`."""
_HOLE = re.compile(r"%\((\w+)\)")


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Event:
    """Something that happened. Each subclass becomes a frozen dataclass, without a decorator of its own.

    Attributes:
        line: Its line in the log, with fields and properties of the event as holes; empty if the log is silent about
            it. The first word is the stable name of the event.
        level: The level of this line.
    """

    line: ClassVar[str] = ""
    level: ClassVar[int] = WARNING

    def __init_subclass__(cls) -> None:
        """Make the subclass a frozen dataclass.

        Raises:
            TypeError: Its line has a hole that is neither a field nor a property.
        """
        dataclass(frozen=True)(cls)
        known = {field.name for field in fields(cls)}
        if unknown := [hole for hole in _HOLE.findall(cls.line) if not (hole in known or hasattr(cls, hole))]:
            raise TypeError(f"{cls.__name__} lacks what its line names: {', '.join(unknown)}.")

    @property
    def severity(self) -> int:
        """The level of this event's line, which may depend on its fields."""
        return self.level

    @property
    def facts(self) -> dict[str, Any]:
        """What stands in the holes of the line."""
        return {hole: _plain(getattr(self, hole)) for hole in _HOLE.findall(self.line)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else value


class SinkEvent(Event):
    """It concerns one sink of a table."""

    table: str
    sink: str


class BatchEvent(Event):
    """A step of one batch."""

    batch_id: int


class TableBatchEvent(BatchEvent):
    """A step of one batch of a table."""

    table: str


class SinkBatchEvent(TableBatchEvent):
    """A step of one batch of a table, by one of its sinks."""

    sink: str


Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Gives each event to the log, then to the other listeners, then to the failpoints.

    A failure of another listener is only logged. An error in the log comes from the user's logging configuration and is
    raised, like that of a failpoint.
    """

    log: Listener
    failpoints: Listener
    others: tuple[Listener, ...] = ()

    def __call__(self, event: Event) -> None:
        """Emit an event."""
        self.log(event)
        for listener in self.others:
            try:
                listener(event)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - no listener may stop the batch, or the process
                self.log(ListenerFailed(type(listener).__name__, type(event).__name__, describe(error)))
        self.failpoints(event)

    def also(self, listener: Listener) -> "Listeners":
        """These listeners and one more."""
        return replace(self, others=(*self.others, listener))


class ListenerFailed(Event):
    """A listener raised an error, which changes nothing."""

    line = "lakesink.listener.failed listener=%(listener)s event=%(event)s error=%(error)s"
    listener: str
    event: str
    error: str


class FailpointActs(BatchEvent):
    """A failpoint is about to act."""

    line = "lakesink.failpoint.reached name=%(name)s batch=%(batch_id)d action=%(action)s"
    name: str
    action: str
