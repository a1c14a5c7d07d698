"""The demo's folder. A folder with other contents is never touched."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from lakesink_protocol.errors import SettingsError

TABLE = "demo.flights"
SINK_ID = "flights"
_SIGN = "made-by-lakesink-demo"


@dataclass(frozen=True, slots=True)
class Place:
    """The demo's folder, as an absolute path."""

    home: Path

    @property
    def days(self) -> Path:
        """The input of the stream: one Parquet file for each day."""
        return self.home / "days"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint."""
        return self.home / "checkpoint"

    @property
    def lakehouse(self) -> Path:
        """The embedded catalog: `LAKESINK_HOME`."""
        return self.home / "lakehouse"

    @property
    def log(self) -> Path:
        """The output of all drivers."""
        return self.home / "drivers.log"


def prepare(home: Path) -> Place:
    """Return an empty folder: create it, or empty it if an earlier demo created it."""
    home = home.absolute()
    sign = home / _SIGN
    if sign.exists():
        shutil.rmtree(home)
    elif home.exists() and not (home.is_dir() and not any(home.iterdir())):
        raise SettingsError(
            "DEMO_FOLDER",
            f"{home} is not an empty folder, nor one that a demo made.",
            data="It was not touched.",
            action="Name another one with --dir.",
        )
    home.mkdir(parents=True, exist_ok=True)
    sign.touch()
    return Place(home)
