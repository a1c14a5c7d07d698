"""A reader who looks at a target again and again, while drivers die and come back."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from proof.contest.place import Place
from proof.contest.sinks import Sink
from proof.contest.target import View
from proof.processes.evidence import looking


@dataclass(slots=True)
class Reader:
    """Notices what a reader should not see.

    Attributes:
        place: Where it looks.
        sink: At whose target.
        looks: How often it looked.
        in_part: Batches that it saw in part.
        went_back: Older values that it saw after newer ones, in words.
        failures: Looks that failed, which no crash of a writer may cause.
    """

    place: Place
    sink: Sink
    looks: int = 0
    in_part: set[int] = field(default_factory=set)
    went_back: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _newest: Mapping[int, int] = field(default_factory=dict)

    def saw(self, seen: View) -> None:
        """Take in what is there at one moment."""
        self.looks += 1
        for number in range(len(self.sink.points) + 1):
            batch = self.place.batch(number)
            if 0 < (seen.rows & batch).total() < batch.total():
                self.in_part.add(number)
        for device, reading in seen.newest.items():
            before = self._newest.get(device, reading)
            if reading < before:
                self.went_back.append(f"device {device} at reading {before}, and then at reading {reading}")
        self._newest = seen.newest

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Look all through the block, and once more at its end."""
        with looking(lambda: self.saw(self.place.view(self.sink)), self.sink.look_seconds, self.failures):
            yield
