"""Pools of threads in a simulated world: their calls are made one after another, by the thread of the world.

The scheduler has always taken them for one call: nobody takes a turn in them, and no fault strikes there. Starting and
waiting for real threads took a tenth of a seed's time.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Self
from unittest.mock import patch

from lakesink.parquet import filesystem
from proof.simulator.world import World


def pooling_in(world: World) -> AbstractContextManager[object]:
    """Inside, files of this process that are read or written at the same time are so in one thread."""
    return patch.object(filesystem, "ThreadPoolExecutor", lambda _: _Pool(world))


class _Pool:
    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], things: Iterable[Any]) -> Iterator[Any]:
        """As of `ThreadPoolExecutor`: all calls are made, also if the result of one is an error."""
        futures = [self._called(function, thing) for thing in things]
        return (future.result() for future in futures)

    def _called(self, function: Callable[[Any], Any], thing: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._world.pooled = True
        try:
            future.set_result(function(thing))
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)
        finally:
            self._world.pooled = False
        return future
