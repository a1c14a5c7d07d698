"""Java programs are run only as the list has them; what is missing is said in one sentence."""

import hashlib
from pathlib import Path

import pytest

from servers import jars
from servers.jars import ARCHIVES, CHECKSUMS, PEERS, SETS, JarSet, JarsMissing, fetched, verified

ONE = JarSet("one", ("example:one:1",))
WANTED = b"the jar"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jars, "FOLDER", tmp_path / "jars")
    monkeypatch.setattr(jars, "CHECKSUMS", tmp_path / "jars.sha256")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    jars.CHECKSUMS.write_text(f"{hashlib.sha256(WANTED).hexdigest()}  one/one-1.jar\n")
    return tmp_path / "jars" / "one"


def maven(folder: Path, script: str) -> None:
    """A program `mvn` that does as told; it finds its folder in `$out`."""
    program = folder.parents[1] / "bin" / "mvn"
    program.parent.mkdir()
    find = 'for word; do case "$word" in -DoutputDirectory=*) out="${word#*=}";; esac; done'
    program.write_text(f"#!/bin/sh\n{find}\n{script}\n")
    program.chmod(0o755)


def test_what_is_here_is_taken_without_maven(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    (folder / "one-1.jar").write_bytes(WANTED)
    monkeypatch.setenv("PATH", "/nowhere")
    assert fetched(ONE) == (folder / "one-1.jar",)


def test_what_is_torn_is_fetched_again_and_nothing_else_is_left(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "one-1.jar").write_bytes(WANTED[:3])
    maven(folder, 'printf "the jar" > "$out/one-1.jar"')
    assert fetched(ONE) == (folder / "one-1.jar",)
    assert (folder / "one-1.jar").read_bytes() == WANTED
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize(
    "script", ['printf "another jar" > "$out/one-1.jar"', 'printf "the jar" > "$out/one-2.jar"', "true"]
)
def test_another_jar_than_the_listed_one_is_refused(folder: Path, script: str) -> None:
    maven(folder, script)
    with pytest.raises(JarsMissing, match=r"other one jars than jars\.sha256 has: .*one-1\.jar"):
        fetched(ONE)
    assert list(folder.iterdir()) == []


def test_no_maven_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(JarsMissing, match="apt-get install maven"):
        fetched(ONE)


def test_a_registry_that_does_not_answer_is_said_and_leaves_nothing(folder: Path) -> None:
    maven(folder, "echo no route to host; exit 1")
    with pytest.raises(JarsMissing, match=r"run it again when the registry answers.*no route to host"):
        fetched(ONE)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_set_without_checksums_is_not_run() -> None:
    with pytest.raises(JarsMissing, match="has no jars two"):
        fetched(JarSet("two", ("example:two:1",)))


def test_an_archive_is_asked_for_by_its_type_checked_and_not_kept(folder: Path) -> None:
    jars.CHECKSUMS.write_text(f"{hashlib.sha256(WANTED).hexdigest()}  two/two-1.zip\n")
    maven(folder, 'grep -q "<version>1</version><type>zip</type>" "$4" && printf "the jar" > "$out/two-1.zip"')
    with verified(JarSet("two", ("example:two:1@zip",))) as came:
        assert (came / "two-1.zip").read_bytes() == WANTED
    assert list(folder.parent.iterdir()) == []


def test_every_set_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [line.split()[1].partition("/")[0] for line in CHECKSUMS.read_text().splitlines()]
    monkeypatch.undo()
    assert set(listed) == SETS.keys() | PEERS.keys() | ARCHIVES.keys()
