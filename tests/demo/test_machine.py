"""A machine that cannot run Spark hears so in one sentence, before anything is installed or started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakesink_protocol.errors import SettingsError
from lakesink_tools.demo.place import check_machine

ROOT = Path(__file__).parents[2]
OLD_JAVA = "#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n"
NO_JAVA = "#!/bin/sh\nexit 1\n"  # what stands for Java on some systems until it is installed
NEW_JAVA = "#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n"


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_check(environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "check-machine.sh")],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("java", [None, OLD_JAVA, NO_JAVA], ids=["none", "Java 8", "a stub"])
def test_make_names_the_java_package_in_one_sentence(tmp_path: Path, java: str | None) -> None:
    if java is not None:
        program(tmp_path, "java", java)

    done = make_check({"JAVA_HOME": str(tmp_path)})

    assert done.returncode != 0
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "apt-get install openjdk-17-jre-headless" in done.stderr
    assert "JAVA_HOME" in done.stderr


@pytest.mark.parametrize("java", [None, OLD_JAVA, NO_JAVA], ids=["none", "Java 8", "a stub"])
def test_the_demo_names_the_java_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: str | None) -> None:
    if java is not None:
        program(tmp_path, "java", java)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SettingsError, match="LAKESINK_JAVA_MISSING") as raised:
        check_machine()

    assert "apt-get install openjdk-17-jre-headless" in raised.value.action


def test_a_java_that_will_do_and_this_python_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "java", NEW_JAVA)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    done = make_check({"JAVA_HOME": str(tmp_path)})

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, sys.executable, "")
    check_machine()


@pytest.mark.parametrize(
    ("python", "package"),
    [
        ("#!/bin/sh\nexit 1\n", "python3"),  # what any question after the version comes to on Python 2
        (f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n', "python3-venv"),
    ],
    ids=["too old", "without venv"],
)
def test_make_names_what_python_lacks_in_one_sentence(tmp_path: Path, python: str, package: str) -> None:
    program(tmp_path, "java", NEW_JAVA)
    own = program(tmp_path, "python-of-its-own", python)

    done = make_check({"JAVA_HOME": str(tmp_path), "PYTHON": str(own)})

    assert done.returncode != 0
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert f"apt-get install {package}" in done.stderr


def test_make_stops_before_it_installs_anything(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)

    done = subprocess.run(
        ["make", "demo"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path / "nowhere")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert "apt-get install openjdk-17-jre-headless" in done.stderr
    assert list(tmp_path.glob(".venv*")) == []


@pytest.mark.parametrize(
    ("target", "told"), [("demo", '-c requirements/dev.txt -e ".[demo]"'), ("clean", "rm -rf .venv .venv-demo ")]
)
def test_the_demo_has_an_environment_of_its_own_without_development_packages(target: str, told: str) -> None:
    call = ["make", "--dry-run", "--always-make", target]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)

    assert told in done.stdout
    assert "-r requirements/dev.txt" not in done.stdout


@pytest.mark.parametrize("lock", ["build.txt", "dev.txt"])
def test_every_line_of_the_lock_pins_one_version(lock: str) -> None:
    lines = [line for line in (ROOT / "requirements" / lock).read_text().splitlines() if not line.startswith("#")]

    assert lines
    assert all(line.count("==") == 1 and "/" not in line and " " not in line for line in lines)
