"""Pools of threads in a simulated world: their calls are made one after another, by the thread of the world.

The scheduler has always taken them for one call: nobody takes a turn in them, and no fault strikes there. Starting and
waiting for real threads took some percent of a seed's time.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import TypeVar
from unittest.mock import patch

from pyiceberg.utils.concurrent import ExecutorFactory

from lakesink.parquet import filesystem
from proof.simulator.world import World

T = TypeVar("T")


@contextmanager
def pooling_in(world: World) -> Iterator[None]:
    """Inside, files that this process reads or writes at the same time are read or written in one thread."""
    pool = _Pool(world)
    with (
        patch.object(filesystem, "ThreadPoolExecutor", lambda _: pool),
        patch.object(ExecutorFactory, "get_or_create", lambda: pool),
    ):
        yield


class _Pool(Executor):
    def __init__(self, world: World) -> None:
        self._world = world

    def submit(self, function: Callable[..., T], /, *arguments: object, **named: object) -> Future[T]:
        """See `Executor`."""
        future: Future[T] = Future()
        outer, self._world.pooled = self._world.pooled, True
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)
        finally:
            self._world.pooled = outer
        return future
