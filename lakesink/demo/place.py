"""Where the demo keeps its things. A folder that holds anything else is never touched."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from lakesink_protocol.errors import SettingsError

TABLE = "demo.flights"
SINK_ID = "flights"
_SIGN = "made-by-lakesink-demo"


@dataclass(frozen=True, slots=True)
class Place:
    """The demo's folder.

    Attributes:
        home: Absolute path.
    """

    home: Path

    @property
    def days(self) -> Path:
        """One Parquet file a day: what the stream reads."""
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
        """What the drivers print, one after the other."""
        return self.home / "drivers.log"


def prepare(home: Path) -> Place:
    """An empty folder for a demo: made, or emptied if an earlier demo made it.

    Raises:
        SettingsError: It holds something else.
    """
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
