"""What the processes of the playground agree on."""

from dataclasses import dataclass
from pathlib import Path

CATALOG = "lake"
TABLE = "demo.events"
SINK_ID = "playground"
TOPIC = "events"
PARTITIONS = 2
BUCKET = "lake"
WAREHOUSE = f"s3://{BUCKET}/warehouse"


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one playground, which ends with it."""

    home: Path

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint."""
        return self.home / "checkpoint"

    @property
    def log(self) -> Path:
        """The output of all drivers."""
        return self.home / "driver.log"

    def of(self, server: str) -> Path:
        """The folder of a server, made if it is not there."""
        path = self.home / server
        path.mkdir(exist_ok=True)
        return path
