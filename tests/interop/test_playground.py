"""The playground by its prompt: every command once, no row lost or doubled, and nothing left when it ends."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from examples.playground.__main__ import PROMPT
from servers import jars, postgres, s3, trino
from testkit.harness import PATIENCE_SECONDS
from testkit.http_servers import skipped_where_missing

pytestmark = pytest.mark.interop
ROOT = Path(__file__).parents[2]
COUNT = re.compile(r"^produced (\d+), in the table (\d+), lost 0, doubled 0$", re.MULTILINE)
COMMANDS = ("status", "rows", "kill", "broker", "rollback", "expire", "audit")


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a short name, for sockets, that PostgreSQL's account may enter."""
    with TemporaryDirectory(prefix="play-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def playground(folder: Path, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    environment = os.environ | {"TMPDIR": str(folder), "PYICEBERG_HOME": str(folder), **variables}
    command = [sys.executable, "-m", "examples.playground"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def until_prompt(process: "subprocess.Popen[str]") -> str:
    """What it prints up to its prompt, or to its end."""
    assert process.stdout is not None
    said = ""
    while not said.endswith(PROMPT):
        character = process.stdout.read(1)
        if not character:
            break
        said += character
    return said


def ask(process: "subprocess.Popen[str]", command: str) -> str:
    assert process.stdin is not None
    process.stdin.write(f"{command}\n")
    process.stdin.flush()
    return until_prompt(process)


@pytest.mark.timeout(8 * PATIENCE_SECONDS)
def test_every_command_keeps_every_row_and_nothing_is_left(folder: Path) -> None:
    with skipped_where_missing():
        for ready in (postgres.installed, s3.installed, trino.installed, lambda: jars.fetched(jars.KAFKA)):
            ready()
    with playground(folder) as process:
        begun = until_prompt(process)
        assert begun.endswith(PROMPT), begun
        told = {command: ask(process, command) for command in COMMANDS}
        started = psutil.Process(process.pid).children(recursive=True)
        assert ask(process, "q").endswith("Ending the servers, and removing the folder.\n")
        assert process.wait(PATIENCE_SECONDS) == 0

    rows = [COUNT.search(said) for said in told.values()]
    assert None not in rows, told
    assert "SIGKILL to the driver" in told["kill"]
    assert "LAKESINK_ROLLED_BACK" in told["rollback"]
    assert "lakesink rewind" in told["rollback"]
    assert "snapshots before" in told["expire"]
    assert len(started) >= len(("PostgreSQL", "S3", "REST", "Kafka", "Trino", "driver", "JVM"))
    _, alive = psutil.wait_procs(started, PATIENCE_SECONDS)
    assert alive == []
    assert list(folder.glob("lakesink-*")) == []


def test_a_server_that_does_not_start_is_named_with_the_end_of_its_log(folder: Path) -> None:
    with skipped_where_missing():
        postgres.installed()
        s3.installed()
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho this machine is too small >&2\nexit 1\n")
    java.chmod(0o755)
    with playground(folder, PATH=f"{java.parent}{os.pathsep}{os.environ['PATH']}") as process:
        said = until_prompt(process)
        assert process.wait(PATIENCE_SECONDS) == 1
    assert "REST catalog (Iceberg's reference server) did not start.\n" in said
    assert "this machine is too small" in said
    assert list(folder.glob("lakesink-*")) == []
