"""A server's Java is found beside the default one, or where a variable says; what is missing is one sentence."""

from pathlib import Path

import pytest

from servers.java import JavaMissing, java_home


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("JAVA_25_HOME", raising=False)
    default = java(tmp_path / "jvm" / "default", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(default / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "jvm"


def java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize("version", ["25", "25.0.3"])
def test_it_is_found_beside_the_default_one(folder: Path, version: str) -> None:
    wanted = java(folder / "newer", version)
    java(folder / "other", "21.0.1")
    (folder / "no-java").mkdir()
    assert java_home(25) == wanted


def test_it_is_found_beside_the_one_of_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "elsewhere" / "17", "17")))
    wanted = java(tmp_path / "elsewhere" / "25", "25")
    assert java_home(25) == wanted


def test_it_is_taken_from_where_its_variable_says(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(folder / "newer", "25.0.1")
    wanted = java(tmp_path / "own", "25.0.2")
    monkeypatch.setenv("JAVA_25_HOME", str(wanted))
    assert java_home(25) == wanted


@pytest.mark.parametrize("variable", [False, True])
def test_none_is_said_with_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch, *, variable: bool) -> None:
    if variable:
        monkeypatch.setenv("JAVA_25_HOME", str(folder / "default"))
    with pytest.raises(JavaMissing, match=r"Java 25 was not found .*set JAVA_25_HOME"):
        java_home(25)
