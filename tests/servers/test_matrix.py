"""What the matrix tells of a version is what its tests said: one that did not run is not well."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from servers.matrix import HERE, Result, counted
from servers.spark_versions import requirements, versions

TESTS = """
import pytest
def test_passes(): pass
def test_fails(): assert False
def test_skips(): pytest.skip("reason")
@pytest.fixture
def broken(): raise RuntimeError
def test_has_no_ground(broken): pass
"""


def test_failures_errors_and_skips_are_counted_each(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    call = [sys.executable, "-m", "pytest", "-q", "--junit-xml=report.xml", "-p", "no:cacheprovider", "test_some.py"]
    subprocess.run(call, cwd=tmp_path, capture_output=True, check=False)
    assert counted(tmp_path / "report.xml") == Counter(passed=1, failed=2, skipped=1)


def test_a_version_is_well_if_all_its_tests_passed_and_there_were_some(tmp_path: Path) -> None:
    assert Result("4.2.1", Counter(passed=3), 1.0).well
    assert not Result("4.2.1", Counter(passed=3, skipped=1), 1.0).well
    assert not Result("4.2.1", Counter(passed=3, failed=1), 1.0).well
    assert not Result("4.2.1", counted(tmp_path / "there-is-none.xml"), 1.0).well


def test_each_version_has_a_list_that_pins_it() -> None:
    assert versions() == ["4.2", "4.3"]
    assert HERE not in versions()
    for version in versions():
        pinned = [line for line in requirements(version).read_text().splitlines() if line.startswith("pyspark==")]
        assert [line.startswith(f"pyspark=={version}.") for line in pinned] == [True]
