"""A reader who looks at a cell's target again and again, while drivers die and come back."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof.guarantees.sinks import Rows, View


@dataclass(slots=True)
class Reader:
    """Notices what a reader should not see.

    Attributes:
        view: Reads the target in a folder.
        folder: The folder.
        batches: Rows of every batch.
        pause_seconds: Between two looks.
        looks: How often it looked.
        in_part: Batches that it saw in part.
        went_back: Older values that it saw after newer ones, in words.
        failures: Looks that failed, which no crash of a writer may cause.
    """

    view: Callable[[Path], View]
    folder: Path
    batches: Sequence[Rows]
    pause_seconds: float
    looks: int = 0
    in_part: set[int] = field(default_factory=set)
    went_back: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _newest: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        """Once."""
        seen = self.view(self.folder)
        self.looks += 1
        for number, batch in enumerate(self.batches):
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
        done = threading.Event()

        def look() -> None:
            while not done.wait(self.pause_seconds):
                self._try()

        thread = threading.Thread(target=look, daemon=True, name="reader")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._try()

    def _try(self) -> None:
        try:
            self.look()
        except Exception as error:  # noqa: BLE001 - whatever a reader meets is told
            self.failures.append(f"{type(error).__name__}: {error}")
