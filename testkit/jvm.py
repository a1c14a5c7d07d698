"""Options for the JVM of each driver that the tests start. A JVM of one short stream starts most of its time."""

import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix, "classes.jsa")
VARIABLE = "SPARK_SUBMIT_OPTS"
"""Spark adds the options in this variable to the JVM of a driver, and to no JVM of an executor."""
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SILENT = "-Xlog:cds*=off"


def options(archive: Path = ARCHIVE) -> str:
    """Options for a short run.

    Args:
        archive: A class archive, see `testkit.class_archive`. The JVM ignores an archive of another Java or PySpark.
    """
    return f"{QUICK} -XX:SharedArchiveFile={archive} {SILENT}" if archive.exists() else QUICK
