"""Prometheus's programs are those of this machine, or unpacked once, or missing with what to do."""

import shutil
from pathlib import Path

import pytest

from servers import prometheus
from servers.prometheus import PrometheusMissing, promtool


def test_a_machine_that_has_neither_the_program_nor_packages_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(prometheus, "FOLDER", tmp_path)
    with pytest.raises(PrometheusMissing, match="install Prometheus"):
        promtool()
    assert list(tmp_path.iterdir()) == []


def test_the_program_of_the_machine_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert promtool() == Path("/usr/bin/promtool")
