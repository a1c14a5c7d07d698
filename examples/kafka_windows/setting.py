"""What the processes of the story agree on: given to each as one argument."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

MOST_BATCHES = 40
FEWEST_PER_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Setting:
    """One run of the story.

    Attributes:
        folder: Holds all that the run keeps.
        bootstrap: The Kafka broker; empty for files.
        days: Days of 2013 that are replayed.
        seed: Of every chance.
        events: How many departures that is.
    """

    folder: str
    bootstrap: str
    days: int
    seed: int
    events: int

    @property
    def home(self) -> Path:
        """The folder."""
        return Path(self.folder)

    @property
    def inbox(self) -> Path:
        """Where files arrive, if there is no broker."""
        return self.home / "inbox"

    @property
    def staging(self) -> Path:
        """Where files are written before they arrive; those of aborted transactions stay here."""
        return self.home / "staging"

    @property
    def checkpoints(self) -> Path:
        """One folder for each query."""
        return self.home / "checkpoints"

    @property
    def finish(self) -> Path:
        """Is there once the driver is to read what has come, and end."""
        return self.home / "finish"

    @property
    def csv(self) -> Path:
        """The flights of 2013 as their package has them."""
        return self.home / "flights.csv"

    @property
    def records_per_batch(self) -> int:
        """At most so many records a batch."""
        return max(FEWEST_PER_BATCH, self.events // MOST_BATCHES)

    @property
    def fewest_batches(self) -> int:
        """Batches that it takes in any case."""
        return -(-self.events // self.records_per_batch)

    def command(self, module: str) -> list[str]:
        """A program of this package, on this setting."""
        return [sys.executable, "-m", f"{__package__}.{module}", json.dumps(asdict(self))]

    @classmethod
    def given(cls) -> Self:
        """The setting that this process was started with."""
        return cls(**json.loads(sys.argv[1]))
