"""The suite as a third party meets it: in an empty project, with pytest and without, and in its words."""

import subprocess
import sys
from pathlib import Path

import pytest

from lakesink.testing import Promise, SinkConformance
from website.tables import promises_table

ROOT = Path(__file__).parents[2]

FORGETFUL = """
import json
import sqlite3

import pytest
from sqlite_sink import SqliteSink

import lakesink.testing


class ForgetfulSink(SqliteSink):
    def _has(self, database, batch):
        return False


class TestForgetfulSink(lakesink.testing.SinkConformance):
    @pytest.fixture
    def target(self, tmp_path):
        sqlite3.connect(tmp_path / "rows.db").execute("CREATE TABLE events (batch, position)")
        return tmp_path

    def open_sink(self, target):
        return ForgetfulSink(target / "rows.db", "events", "events", target / "staging")

    def read_rows(self, target):
        return sqlite3.connect(target / "rows.db").execute("SELECT batch, position FROM events").fetchall()
"""
NOTHING_SUPPLIED = """
import lakesink.testing


class TestNothing(lakesink.testing.SinkConformance):
    pass
"""


def run_pytest(folder: Path, suite: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(suite)
    (folder / "sqlite_sink.py").write_text((ROOT / "examples/custom_sink/sqlite_sink.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.soak
def test_a_broken_promise_is_told_in_the_words_of_the_seam(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, FORGETFUL, "-k", "replayed or begin_changes")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "broken promise REPLAY: begin finds a committed batch in the target itself." in done.stdout
    assert (
        "Required by: lakesink.two_phase.TwoPhaseCommitSink.begin, see docs/use/custom-sinks.md#replay" in done.stdout
    )


@pytest.mark.soak
def test_what_was_not_supplied_is_asked_for(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, NOTHING_SUPPLIED, "-k", "one_process_may_run")
    assert "supply the fixture `target`" in done.stdout


WITHOUT_PYTEST = """
import sys

sys.modules["pytest"] = None  # as if it were not installed

import lakesink.testing

lakesink.testing.reached("after-call", 0)
try:
    lakesink.testing.SinkConformance
except ImportError as error:
    print(error)
"""


def test_a_sink_with_failpoints_needs_no_pytest_and_the_suite_says_that_it_does() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], capture_output=True, text=True, check=True)
    assert done.stdout == "lakesink.testing.SinkConformance needs pytest: pip install pytest\n"


def test_every_promise_is_checked_and_every_check_is_about_one() -> None:
    checks = [getattr(SinkConformance, name) for name in dir(SinkConformance) if name.startswith("test_")]
    assert {check.promise for check in checks} == set(Promise)


def test_the_documents_show_the_promises_of_the_code() -> None:
    assert promises_table() in (ROOT / "docs/use/custom-sinks.md").read_text()


@pytest.mark.parametrize("promise", Promise)
def test_a_promise_names_a_part_of_the_seam_that_is_there(promise: Promise) -> None:
    import lakesink_protocol.two_phase as found  # noqa: PLC0415 - its parts are looked up by name

    for name in promise.seam.split("."):
        found = getattr(found, name)
