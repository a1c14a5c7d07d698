"""``python -m examples.playground``: servers, one stream, and a prompt. ``q`` or Ctrl-C ends it and leaves nothing."""

import shutil
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from .application import Application
from .commands import Playground, commands, run
from .producer import EventSource, Truth
from .services import NotStarted, Services, last_lines_of, services
from .setting import TABLE, Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMPT = "playground> "
QUIT = ("q", "quit", "exit")


def main() -> int:
    """0 if every row was there once after every command; 1 if not, or if a server did not start."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Folder(Path(mkdtemp(prefix="lakesink-playground-")))
    say(f"Everything is in {folder.home}, and ends with this program.")
    try:
        with services(folder, say) as running, playing(folder, running) as playground:
            return prompt(playground)
    except NotStarted as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        say("Ending the servers, and removing the folder.")
        shutil.rmtree(folder.home, ignore_errors=True)


@contextmanager
def playing(folder: Folder, running: Services) -> "Iterator[Playground]":
    """The events and the driver, which end with the block."""
    truth = Truth(running.database)
    source = EventSource(running.broker, truth)
    with Application(folder, running.broker.bootstrap, running.environment) as application:
        source.start()
        try:
            say("  Spark and the stream ...")
            application.start()
            playground = Playground(folder, running, application, source, truth, say)
            if not playground.settled().rows:
                raise NotStarted(f"The stream did not start.\n{last_lines_of(folder.log)}")
            yield playground
        finally:
            source.stop()
            truth.close()


def prompt(playground: Playground) -> int:
    """Read commands until the end; 1 if a count was not exact."""
    known, exact = commands(playground), True
    say(f"Events flow from Kafka into {TABLE}. Type help, or q to end.")
    while True:
        print(PROMPT, end="", flush=True)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if not line or word in QUIT:
            return 0 if exact else 1
        if word in known:
            found = run(playground, known[word])
            exact = exact and found is not None and found.exact
        elif word:
            say("\n".join(f"  {name:10}{command.__doc__}" for name, command in known.items()))
            say(f"  {'q':10}end everything")


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
