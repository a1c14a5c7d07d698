"""The JVM of a test starts faster with an archive of its classes, and starts without one too."""

import subprocess
from pathlib import Path

from testkit import jvm


def test_an_archive_that_is_missing_is_not_asked_for(tmp_path: Path) -> None:
    assert jvm.options(tmp_path / "classes.jsa") == jvm.QUICK


def test_a_jvm_ignores_an_archive_that_it_cannot_use_and_says_nothing_about_it(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"no archive" * 1000)
    options = jvm.options(archive)
    assert str(archive) in options
    done = subprocess.run(["java", *options.split(), "-version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert archive.name not in done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr
