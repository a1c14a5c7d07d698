"""Calls for many items, several at a time. A storage answers late, and a history has many thousands of files."""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

AT_ONCE = 16
_LONGEST_TURN = 32
T = TypeVar("T")
R = TypeVar("R")


def at_once(call: Callable[[T], R], items: Collection[T]) -> Iterator[R]:
    """The results in the order of the items; only a few are waited for at a time. Raises what a call raises.

    Of many items, a thread takes several in a turn: to hand over one costs as much as to look at a local file.
    """
    rest, length = iter(items), min(_LONGEST_TURN, 1 + len(items) // (4 * AT_ONCE))
    turns = iter(lambda: list(islice(rest, length)), [])
    waiting: deque[Future[list[R]]] = deque()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for turn in turns:
            waiting.append(pool.submit(list, map(call, turn)))
            if len(waiting) > 2 * AT_ONCE:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
