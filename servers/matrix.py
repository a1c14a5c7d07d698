"""The main tests on every version of PySpark that lakesink is for, one after the other, and what came of them.

``python -m servers.matrix [VERSION...]``; without names all of them. Needs nothing that is not fetched here.
"""

import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import pyspark

from servers import spark_versions
from servers.jars import ROOT
from servers.missing import Missing

TESTS = (
    "tests/spark",
    "tests/adapter",
    "tests/checkpoint",
    "tests/test_public_names.py",
    "tests/processes/test_kills.py::test_driver_killed_while_its_tasks_write_leaves_only_orphans",
)
HERE = ".".join(pyspark.__version__.split(".")[:2])
LONGEST_SECONDS = 3600
_COLUMNS = ("PySpark", "tests", "passed", "failed", "skipped", "seconds")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of the tests on one version.

    Attributes:
        version: Of PySpark, as it says itself.
        counts: Tests by ``passed``, ``failed`` and ``skipped``.
        seconds: How long they took.
    """

    version: str
    counts: Counter[str]
    seconds: float

    @property
    def well(self) -> bool:
        """True if all that there are have passed."""
        return self.counts["passed"] == self.counts.total() > 0

    def cells(self) -> tuple[str, ...]:
        """As the table shows it."""
        counted = [str(self.counts[how]) for how in ("passed", "failed", "skipped")]
        return (self.version, str(self.counts.total()), *counted, f"{self.seconds:.0f}")


def run(python: str) -> Result:
    """Run the tests with a Python.

    Args:
        python: Has PySpark and all that the tests need.
    """
    call = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    version = subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()
    print(f"PySpark {version}", flush=True)
    started = time.monotonic()
    with TemporaryDirectory(prefix="lakesink-matrix-") as folder:
        report = Path(folder, "report.xml")
        own = ["-m", "pytest", "-m", "not soak and not nightly and not interop", "-n", "2", "--dist", "worksteal"]
        cache = ["-o", f"cache_dir={folder}", f"--junit-xml={report}"]
        subprocess.run([python, *own, *cache, *TESTS], check=False, cwd=ROOT, timeout=LONGEST_SECONDS)
        return Result(version, counted(report), time.monotonic() - started)


def counted(report: Path) -> Counter[str]:
    """Tests by what came of them.

    Args:
        report: In JUnit's form; none at all if the run did not come to its end.
    """
    counts: Counter[str] = Counter()
    if not report.exists():
        return counts
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by our own run
        said = {child.tag for child in case}
        counts["failed" if said & {"failure", "error"} else "skipped" if "skipped" in said else "passed"] += 1
    return counts


def main(names: list[str]) -> None:
    """Run all, or some, and end with 1 if one of them is not well."""
    known = [HERE, *spark_versions.versions()]
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"There is no version {', '.join(unknown)} here; there are {', '.join(known)}.")
    try:
        wanted = names or known
        pythons = [sys.executable if name == HERE else str(spark_versions.installed(name)) for name in wanted]
    except Missing as error:
        sys.exit(str(error))
    results = [run(python) for python in pythons]
    for cells in (_COLUMNS, *(result.cells() for result in results)):
        print("".join(f"{cell:>10}" for cell in cells))
    sys.exit(0 if all(result.well for result in results) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
