"""Clock, chance and the scheduler: actors are coroutines that give way at every call which leaves their process."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from greenlet import greenlet

START_MS = 1_900_000_000_000
SAME_ACTOR_GOES_ON = 0.6
"""How likely the scheduler lets an actor take its next step at once: short bursts reach deep states sooner."""
MAX_STEPS = 20_000


class Actor:
    """Something that acts by itself: a driver, a writer, an operator. It runs until it ends or is killed.

    Args:
        name: As the story calls it.
        run: What it does.
        hub: Where control goes when it pauses or ends.
    """

    def __init__(self, name: str, run: Callable[[], None], hub: greenlet) -> None:
        self.name = name
        self.wakes_at_ms = 0
        self.killed = False
        self.calling = False
        self._coroutine = greenlet(run, parent=hub)

    @property
    def alive(self) -> bool:
        """It has something left to do."""
        return not self.killed and not self._coroutine.dead

    def step(self) -> None:
        """Let it run up to its next pause."""
        self._coroutine.switch()

    def runs(self) -> bool:
        """The code that is being executed is this actor's."""
        return greenlet.getcurrent() is self._coroutine

    def discard(self) -> None:
        """Unwind what a killed actor has on its stack, so that nothing of it lives on."""
        if not self._coroutine.dead and self._coroutine:
            self._coroutine.throw()


@dataclass(eq=False)
class World:
    """What all actors share.

    Attributes:
        seed: All chance comes from it.
        now_ms: The clock, milliseconds since the epoch.
        story: What happened, a line each.
        faults: How often each kind of fault was injected.
        calm: True once no more faults are injected.
        over: True once the run has been judged: what is unwound after that changes nothing.
        pooled: True while a call of a pool's threads is made, which are one to the scheduler.
    """

    seed: int
    now_ms: int = START_MS
    story: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    calm: bool = False
    over: bool = False
    pooled: bool = False
    steps: int = 0
    actors: list[Actor] = field(default_factory=list)
    everybody: list[Actor] = field(default_factory=list)
    chances: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._thread = threading.get_ident()
        self._hub = greenlet.getcurrent()
        self._current: Actor | None = None

    @property
    def current(self) -> Actor | None:
        """The actor whose code is being executed; None if it is nobody's."""
        return self._current if self._current is not None and not self._elsewhere and self._current.runs() else None

    @property
    def _elsewhere(self) -> bool:
        """The code that is being executed is that of a pool or a library's thread: nothing of it is scheduled."""
        return self.pooled or threading.get_ident() != self._thread

    def start(self, name: str, run: Callable[[], None]) -> Actor:
        """Add an actor."""
        actor = Actor(name, run, self._hub)
        actor.wakes_at_ms = self.now_ms
        self.actors.append(actor)
        self.everybody.append(actor)
        return actor

    def tell(self, what: str) -> None:
        """Add a line to the story."""
        who = self.current.name if self.current else "world"
        self.story.append(f"{(self.now_ms - START_MS) / 1000:>10.3f} s  {who}: {what}")

    def pause(self) -> None:
        """A call leaves the process: anything may happen before it goes on. Calls of a pool's threads are one."""
        if not self._elsewhere and greenlet.getcurrent() is not self._hub:
            self._hub.switch()

    def call(self) -> None:
        """Like `pause`, within one call of the network: nobody stops a process for hours between two packets."""
        current = self.current
        if current is not None:
            current.calling = True
            self._hub.switch()
            current.calling = False

    def sleep(self, wait_ms: float) -> None:
        """The actor that calls waits."""
        if self.current is not None:
            self.current.wakes_at_ms = self.now_ms + int(wait_ms)
            self._hub.switch()

    def strikes(self, fault: str) -> bool:
        """Draw whether a fault happens now, and count it."""
        chance = self.chances.get(fault, 0.0)
        if self.calm or chance == 0.0 or self._elsewhere or self.random.random() >= chance:
            return False
        self.faults[fault] += 1
        return True

    def run(self) -> bool:
        """Run all actors to their ends; False if they do not come to one."""
        limit = self.steps + MAX_STEPS
        while self.steps < limit:
            self.actors = [actor for actor in self.actors if actor.alive]
            if not self.actors:
                return True
            self._step()
        return False

    def _step(self) -> None:
        self.steps += 1
        self.now_ms += self.random.randrange(1, 20)
        ready = [actor for actor in self.actors if actor.wakes_at_ms <= self.now_ms]
        if not ready:
            self.now_ms = min(actor.wakes_at_ms for actor in self.actors)
            return
        if self._current not in ready or self.random.random() >= SAME_ACTOR_GOES_ON:
            self._current = self.random.choice(ready)
        assert self._current is not None
        self._current.step()
