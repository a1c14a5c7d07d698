"""Makes an archive of the classes that a driver's JVM loads: a JVM that maps it starts with a third less work.

Run as ``python -m testkit.class_archive``. Without the archive, a JVM starts as usual.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext

from testkit import driver, jvm
from testkit.harness import Stream


def make(archive: Path) -> None:
    """Run one stream by each adapter, and keep the classes of the JVM.

    Args:
        archive: The file to write. An interrupted run leaves it as it was.
    """
    made = archive.with_name(f"{archive.name}.made")
    os.environ |= {
        jvm.VARIABLE: f"{jvm.QUICK} -XX:ArchiveClassesAtExit={made} {jvm.SILENT}",
        "PYSPARK_PYTHON": sys.executable,
    }
    with TemporaryDirectory(prefix="lakesink-classes-") as folder:
        os.environ["LAKESINK_HOME"] = f"{folder}/home"
        for adapter in ("stream", "format"):
            stream = Stream(Path(folder, adapter), adapter=adapter, table=f"demo.{adapter}")
            stream.add_files(0, 2)
            driver.main(stream.config())
        _end_jvm()
    if made.exists():
        made.replace(archive)


def _end_jvm() -> None:
    """A JVM writes its archive when it ends, and this one ends with its standard input."""
    gateway = SparkContext._gateway  # noqa: SLF001 # PySpark has no way to the process
    assert gateway is not None
    process = gateway.proc
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    make(jvm.ARCHIVE)
