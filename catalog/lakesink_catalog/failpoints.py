"""Named places where a process can be made to die, stop or fail, for tests, demos and drills.

``LAKESINK_FAILPOINTS`` holds a comma-separated list of ``name[@batch]=action``. Actions: ``kill`` (SIGKILL to this very
process), ``stop`` (SIGSTOP), ``raise``, and ``pause:PATH`` (creates PATH, then waits until it is removed). The variable
is read at each point, so a run without it costs one dictionary look-up.
"""

import os
import signal
import time
from pathlib import Path

VARIABLE = "LAKESINK_FAILPOINTS"


class FailpointReached(RuntimeError):
    """Raised by the action ``raise``."""


def reached(name: str, batch_id: int) -> None:
    """Carry out the action armed for this place and batch, if there is one."""
    armed = os.environ.get(VARIABLE)
    if not armed:
        return
    for setting in armed.split(","):
        place, _, action = setting.strip().partition("=")
        if place in (name, f"{name}@{batch_id}"):
            _act(name, action)


def _act(name: str, action: str) -> None:
    verb, _, argument = action.partition(":")
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif verb == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif verb == "pause":
        flag = Path(argument)
        flag.touch()
        while flag.exists():
            time.sleep(0.02)
    elif verb == "raise":
        raise FailpointReached(name)
    else:
        raise ValueError(f"{VARIABLE}: unknown action {action!r} for {name!r}; use kill, stop, raise or pause:PATH")
