"""Named places in the code where a process can be killed, stopped or made to fail, for tests, demos and drills.

``LAKESINK_FAILPOINTS`` holds a comma-separated list of ``name[@batch]=action``, see `FAILPOINTS` and `ACTIONS`. Each
place reads the variable. Without it, a place costs one dictionary look-up. The first place that is reached checks the
whole variable, before any action runs.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lakesink_catalog.log import log
from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.suggest import did_you_mean

VARIABLE = "LAKESINK_FAILPOINTS"


class FailpointReached(RuntimeError):
    """Raised by the action ``raise``."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """One place.

    Attributes:
        replay: The outcome of the batch if its process dies here and the query is started again.
        needs: Without it, no batch reaches the place: changes by key, or maintenance that finds files to rewrite.
    """

    process: str
    meaning: str
    replay: str
    needs: Literal["", "changes", "maintenance"] = ""


FAILPOINTS = {
    "batch-start": Failpoint("driver", "Spark has logged the batch's offsets; nothing is read or written", "written"),
    "while-writing": Failpoint("executor", "a task has written rows into a file that is not closed", "written again"),
    "before-prepared": Failpoint("driver", "every task has voted; there is no prepared record", "written again"),
    "after-prepared": Failpoint("driver", "the prepared record is durable; readers see nothing", "recovered"),
    "after-locate": Failpoint(
        "driver",
        "the rows that changes replace or delete are located, on each head that an attempt may commit on",
        "recovered",
        needs="changes",
    ),
    "before-call": Failpoint("driver", "the commit is about to be sent; reached by every attempt", "recovered"),
    "after-call": Failpoint("driver", "the commit has landed; its answer is not checked yet", "already committed"),
    "after-commit": Failpoint(
        "driver", "the sink is done; Spark has not logged the batch as complete", "already committed"
    ),
    "after-rewrite": Failpoint(
        "driver",
        "the batch has landed, and a group of small files is rewritten; nothing references the new files",
        "already committed",
        needs="maintenance",
    ),
    "before-compaction": Failpoint(
        "driver",
        "the same, and the commit of the group is about to be sent",
        "already committed",
        needs="maintenance",
    ),
}
"""Every place in lakesink, in the order in which a batch reaches them.

A name with a dot belongs to a custom sink: it is not in this table, and is not checked.
"""

NAMES: Mapping[type[events.BatchEvent], str] = {
    events.BatchStarted: "batch-start",
    events.FileClosing: "while-writing",
    events.RecordDue: "before-prepared",
    events.RecordStored: "after-prepared",
    events.ChangesLocated: "after-locate",
    events.CommitDue: "before-call",
    events.CommitAnswered: "after-call",
    events.BatchLanded: "after-commit",
    events.GroupRewritten: "after-rewrite",
    events.CompactionDue: "before-compaction",
}
"""The event that reaches each place."""

ACTIONS = {
    "kill": "send SIGKILL to this process",
    "stop": "send SIGSTOP to this process; `kill -CONT` continues it",
    "raise": "raise `FailpointReached`",
    "pause:PATH": "create the file PATH and wait until it is removed",
}


@dataclass(frozen=True, slots=True)
class _Armed:
    name: str
    batch: str
    verb: str
    argument: str


def failpoints(event: events.Event) -> None:
    """Reach the place of an event, if it has one."""
    if isinstance(event, events.BatchEvent) and type(event) in NAMES:
        reached(NAMES[type(event)], event.batch_id)


def reached(name: str, batch_id: int) -> None:
    """Carry out the action that the variable sets for this place and batch, if there is one."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    for armed in list(_parsed(text)):
        if armed.name == name and armed.batch in ("", str(batch_id)):
            log(events.FailpointActs(batch_id, name, armed.verb))  # custom sinks reach their places without listeners
            _HANDLERS[armed.verb](armed)


def _parsed(text: str) -> Iterator[_Armed]:
    for setting in filter(None, map(str.strip, text.split(","))):
        place, equals, action = setting.partition("=")
        name, at, batch = place.partition("@")
        verb, colon, argument = action.partition(":")
        if not equals:
            raise _malformed(setting, "The action is missing: write name[@batch]=action.")
        if name not in FAILPOINTS and "." not in name:
            raise _malformed(setting, f"There is no failpoint {name[:60]!r}. {did_you_mean(name, FAILPOINTS)}")
        if at and not (batch.isascii() and batch.isdecimal()):
            raise _malformed(setting, "Write the id of a batch after @.")
        if verb not in _HANDLERS:
            raise _malformed(setting, f"There is no action {verb[:60]!r}. {did_you_mean(verb, _HANDLERS)}")
        if bool(argument) != (verb == "pause") or bool(colon) != bool(argument):
            raise _malformed(setting, "Only pause has an argument, and it is required: pause:PATH.")
        yield _Armed(name, batch, verb, argument)


def _malformed(setting: str, why: str) -> SettingsError:
    return SettingsError.of("FAILPOINT_INVALID", setting=setting[:60], why=why)


def _signal(number: signal.Signals) -> Callable[[_Armed], None]:
    return lambda _: os.kill(os.getpid(), number)


def _raise(armed: _Armed) -> None:
    raise FailpointReached(armed.name)


def _pause(armed: _Armed) -> None:
    flag = Path(armed.argument)
    flag.touch()
    while flag.exists():
        time.sleep(0.02)


_HANDLERS: dict[str, Callable[[_Armed], None]] = {
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "raise": _raise,
    "pause": _pause,
}
