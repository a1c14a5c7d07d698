"""A person at a terminal sees one line for each batch, whole and once; nobody else sees any."""

import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.logging import RichHandler

import lakesink
from lakesink.observe.terminal import Totals, ended, is_shown, watched
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from tests.spark.streams import file_stream, run, write_files
from tests.watch import pseudo_terminal

LOGGER = logging.getLogger("lakesink")
END = "\x03end\x03"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Everything that the driver beside this file wrote to its terminal."""
    folder = tmp_path_factory.mktemp("terminal")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LAKESINK_", "NO_COLOR"))}
    home = {"LAKESINK_HOME": str(folder / "lakehouse"), "PYICEBERG_HOME": str(folder)}
    own = home | {"PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm-256color"}
    return pseudo_terminal.run(
        [sys.executable, "-m", "tests.watch.driver", str(folder)], folder, clean | own | {"COLUMNS": "120"}
    )


@pytest.fixture(scope="module")
def parts(written: str) -> dict[str, list[str]]:
    """Lines that a person sees under each heading, without Spark's traces."""
    found: dict[str, list[str]] = {"": []}
    for line in pseudo_terminal.seen(written):
        if line.startswith("== "):
            found[line.removeprefix("== ")] = []
        else:
            found[list(found)[-1]].append(line)
    return {name: [line for line in lines if _is_of_lakesink(line)] for name, lines in found.items()}


def _is_of_lakesink(line: str) -> bool:
    return line.startswith("lakesink: ") or re.search(r"  (batch|version|query) \w+|log: lakesink", line) is not None


def matches(lines: list[str], *patterns: str) -> None:
    assert len(lines) == len(patterns), "\n".join(lines)
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


COMMITTED = r"committed  +10 rows +1 file +\d+ B  [\d,]+ ms"
ENDED = r"query ended  3 batches in [\d.]+ s: 3 committed \(30 rows, 3 files, [\d.]+ \w+\)"


@pytest.mark.driver
def test_a_stream_says_where_it_writes_and_shows_a_line_for_each_batch(parts: dict[str, list[str]]) -> None:
    matches(
        parts["first"],
        r"lakesink: demo\.events in the embedded catalog in /.*/lakehouse, sink events, begins with batch 0",
        rf"demo\.events  batch 0     {COMMITTED}",
        rf"demo\.events  batch 1     {COMMITTED}",
        r"demo\.events  batch 2     failed  FailpointReached: after-prepared  [\d,]+ ms",
        r"demo\.events  query ended  3 batches in [\d.]+ s: 2 committed \(20 rows, 2 files, [\d.]+ \w+\); 1 failed",
    )


@pytest.mark.driver
def test_a_later_run_says_where_it_goes_on_and_what_it_found(parts: dict[str, list[str]]) -> None:
    matches(
        parts["recovered"],
        r"lakesink: demo\.events in .*, sink events, goes on with batch 2",
        r"demo\.events  batch 2     recovered +10 rows +1 file .* \(the rows that an earlier run prepared\)",
        r"demo\.events  query ended  1 batch in [\d.]+ s: 1 recovered \(10 rows, 1 file, \d+ B\)",
    )
    matches(
        parts["replayed"],
        r"lakesink: .*",
        r"demo\.events  batch 2     already committed  nothing to write  [\d,]+ ms",
        r"demo\.events  query ended  1 batch in [\d.]+ s: 1 already committed",
    )


@pytest.mark.driver
def test_a_refusal_has_its_code(parts: dict[str, list[str]]) -> None:
    [_, refusal, end] = parts["refused"]
    assert refusal.startswith("demo.events  batch 0     refused  [LAKESINK_NEW_CHECKPOINT] Batch 0 is from a new ")
    assert re.fullmatch(r"demo\.events  query ended  1 batch in [\d.]+ s: 1 refused", end)


@pytest.mark.driver
def test_an_error_that_tasks_find_is_printed_once(written: str, parts: dict[str, list[str]]) -> None:
    [line] = parts["null keys"]
    assert re.fullmatch(
        r"demo\.keyed  version 1     failed  \[LAKESINK_KEY_NULL\] Column 'id' of the key is NULL in at least 1 row; "
        r"the first is row 1 of its task\.  [\d,]+ ms",
        line,
    )
    assert written.count("LAKESINK_KEY_NULL") == 1


@pytest.mark.driver
def test_appends_directories_and_own_sinks_have_lines_too(parts: dict[str, list[str]]) -> None:
    matches(parts["appended"], r"demo\.loads  version 42    committed  +5 rows +\d files? .*")
    header, *batches, end = parts["files"]
    assert re.fullmatch(r"lakesink: directory /.*/out, sink f, begins with batch 0", header)
    matches(batches, *(rf"f  batch {n}     {COMMITTED}" for n in range(3)))
    assert re.fullmatch(rf"f  {ENDED}", end)
    assert [line.split()[:3] for line in parts["own sink"][1:4]] == [["lines", "batch", str(n)] for n in range(3)]


@pytest.mark.driver
def test_an_option_turns_the_lines_off(parts: dict[str, list[str]]) -> None:
    assert parts["silent"] == []


@pytest.mark.driver
def test_no_batch_is_shown_twice_where_logging_writes_to_the_same_terminal(parts: dict[str, list[str]]) -> None:
    shown = [line for line in parts["warnings logged"] if "batch" in line and "query" not in line]
    second = [line for line in shown if re.search(r"batch[ =]2 ", line)]  # the failpoint, the failure, the recovery
    assert [line.startswith("log: ") for line in second] == [True, True, True]
    assert len([line for line in shown if re.search(r"committed  ", line)]) == 2
    assert all(line.startswith("log: ") for line in parts["all logged"])
    assert len([line for line in parts["all logged"] if "batch.committed" in line]) == 3


@pytest.mark.driver
def test_no_line_is_glued_to_the_progress_bar(written: str, parts: dict[str, list[str]]) -> None:
    """The bar is drawn all the time, by another process."""
    assert written.count("[Stage ") > 20
    assert [line for lines in parts.values() for line in lines if "[Stage" in line] == []
    ours = [line for line in written.split("\n") if re.search(r"  batch \d", line)]
    assert [line for line in ours if "\r\x1b[2K" not in line and "log: " not in line] == []


@pytest.mark.driver
def test_colours_repeat_what_words_say(written: str) -> None:
    for word, colour in {
        "committed": 32,
        "recovered": 33,
        "already committed": 33,
        "failed": 31,
        "refused": 31,
    }.items():
        assert f"\x1b[{colour}m{word}\x1b[0m" in written


# Without Spark


FINISHED = events.BatchFinished(3, "demo.events", "events", 0.5, 0.1, Committed(7, 1000, 1, 2048))


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LAKESINK_VERBOSE": "", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LINES", raising=False)  # with it, a dumb terminal is as wide as COLUMNS


@contextmanager
def terminal() -> Iterator[Callable[[], str]]:
    """Standard error is a terminal; the function gives what was written since."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as stream, redirect_stderr(stream):

        def written() -> str:
            """A terminal passes on what it gets in parts: the end is where the mark is."""
            stream.write(END)
            stream.flush()
            found = b""
            while not found.endswith(END.encode()):
                found += os.read(ours, 65_536)
            return found.decode().removesuffix(END)

        yield written
    os.close(ours)


@pytest.fixture
def unlogged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No logging is configured, as in a first program; pytest configures some. Handlers and levels are put back."""
    monkeypatch.setattr(LOGGER, "propagate", False)
    monkeypatch.setattr(LOGGER, "handlers", [])
    level = LOGGER.level
    yield
    LOGGER.setLevel(level)


def filtered(handler: logging.Handler) -> logging.Handler:
    handler.addFilter(logging.Filter("another.program"))
    return handler


def log_with(handler: logging.Handler) -> None:
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)


@pytest.mark.usefixtures("unlogged")
def test_no_color_and_dumb_terminals_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal() as written:
        plain = "demo.events  batch 3     committed    1,000 rows    1 file   2.0 KiB  500 ms"
        watched("demo.events", "", verbose=None)(FINISHED)
        assert "\x1b[32mcommitted" in written()
        monkeypatch.setenv("NO_COLOR", "1")
        watched("demo.events", "", verbose=None)(FINISHED)
        assert written() == f"\r\x1b[2K{plain}\r\n"
        monkeypatch.setenv("TERM", "dumb")
        watched("demo.events", "", verbose=None)(FINISHED)
        assert written() == f"\r{plain:<79}\r\n"


@pytest.mark.usefixtures("unlogged")
def test_names_and_errors_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal() as written:
        monkeypatch.setenv("NO_COLOR", "1")
        failed = events.BatchFailed(3, "t", "s", 0.5, 0.1, False, "X", "bad \x1b[2J [red]", ("  - row\x07",))  # noqa: FBT003
        watched("\x1b]0;title", "", verbose=None)(failed)
        assert (
            written() == "\r\x1b[2K\ufffd]0;title  batch 3     failed  bad \ufffd[2J [red]  500 ms\r\n  - row\ufffd\r\n"
        )


@pytest.mark.usefixtures("unlogged")
def test_a_rich_handler_on_the_same_terminal_is_enough() -> None:
    with terminal() as written:
        log_with(RichHandler(console=Console(file=sys.stderr, width=200)))
        watched("demo.events", "", verbose=None)(FINISHED)
        [line] = written().splitlines()
        assert "lakesink.batch.committed" in line


@pytest.mark.usefixtures("unlogged")
def test_a_log_in_a_file_loses_nothing(tmp_path: Path) -> None:
    with terminal() as written:
        handler = logging.FileHandler(tmp_path / "log")
        log_with(handler)
        replayed = events.BatchFinished(4, "demo.events", "events", 0.5, 0.1, AlreadyCommitted(None))
        for event in (FINISHED, replayed):
            watched("demo.events", "", verbose=None)(event)
        handler.close()
        assert [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()] == [
            "lakesink.batch.committed",
            "lakesink.batch.already-committed",
        ]
        assert "batch 4     " in written()


def test_recovered_batches_are_counted_apart_at_the_end() -> None:
    totals = Totals()
    for outcome in (
        Committed(7, 1000, 1, 2048),
        Committed(8, 0, 0, 0),
        Committed(9, 500, 2, 1024, recovered=True),
        Committed(10, 1, 1, 1024, accepted="Gap"),
        AlreadyCommitted(None),
    ):
        totals.add(replace(FINISHED, outcome=outcome))
    assert totals.line("s").after == (
        "  5 batches in 2.5 s: 2 committed (1,000 rows, 1 file, 2.0 KiB); 1 recovered (500 rows, 2 files, 1.0 KiB);"
        " 1 accepted (1 row, 1 file, 1.0 KiB); 1 already committed"
    )


ENDS = {
    "committed": FINISHED,
    "failed": events.BatchFailed(4, "demo.events", "events", 0.5, 0.1, False, "X", "why", ()),  # noqa: FBT003
    "refused": events.BatchFailed(4, "demo.events", "events", 0.5, 0.1, True, "X", "why", ()),  # noqa: FBT003
    "stopped": events.BatchInterrupted(4, "demo.events", "events", 0.5, 0.1),
    "already committed": replace(FINISHED, outcome=AlreadyCommitted(None)),
}


@pytest.mark.parametrize("word", ENDS)
def test_the_end_of_a_query_counts_each_batch_by_the_word_of_its_line(word: str) -> None:
    totals = Totals()
    totals.add(ENDS[word])
    shown = ended(ENDS[word], "s", "batch")
    assert shown is not None
    assert shown.word.strip() == word
    assert totals.line("s").after.startswith(f"  1 batch in 0.5 s: 1 {word}")


def in_container(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error of a process without a terminal, in which nobody has configured logging."""
    monkeypatch.delenv("LAKESINK_VERBOSE", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # asks for colours, not for lines
    monkeypatch.setattr(LOGGER, "propagate", False)
    monkeypatch.setattr(LOGGER, "handlers", [])  # pytest has put its own there, so this is no fixture
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    return written


def test_without_a_terminal_a_line_for_each_batch_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    container = in_container(monkeypatch)
    listeners = watched("demo.events", "demo.events", verbose=None)
    for event in (*ENDS.values(), events.QueryEnded()):
        listeners(event)
    found = [line.split()[3 if "ended" not in line else 2] for line in container.getvalue().splitlines()]
    assert found == ["committed", "failed", "refused", "stopped", "already", "ended"]
    assert "\x1b" not in container.getvalue()


def test_without_a_terminal_nothing_is_printed_once_logging_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    container = in_container(monkeypatch)
    listeners = watched("demo.events", "demo.events", verbose=None)
    LOGGER.addHandler(logging.NullHandler())
    listeners(FINISHED)
    assert container.getvalue() == ""


@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize(
    ("verbose", "handler", "level", "shown"),
    [
        (None, None, logging.ERROR, True),  # the lines stand in for the log
        (False, None, logging.ERROR, True),  # Python's own handler prints errors
        (False, None, logging.CRITICAL, False),
        (None, logging.NullHandler(), logging.ERROR, False),
        (True, logging.NullHandler(), logging.CRITICAL, True),
        (None, logging.StreamHandler(), logging.ERROR, True),
        (None, logging.StreamHandler(), logging.CRITICAL, False),
        (None, filtered(logging.StreamHandler()), logging.ERROR, False),
    ],
)
def test_a_failure_is_known_to_be_shown_by_a_terminal_or_by_a_handler_of_the_log(
    monkeypatch: pytest.MonkeyPatch, *, verbose: bool | None, handler: logging.Handler | None, level: int, shown: bool
) -> None:
    in_container(monkeypatch)
    monkeypatch.setattr(LOGGER, "handlers", [handler] if handler else [])
    LOGGER.setLevel(level)
    assert is_shown(ENDS["failed"], watched("demo.events", "", verbose=verbose)) is shown


def test_without_standard_error_or_if_unwanted_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    container = in_container(monkeypatch)
    assert watched("demo.events", "", verbose=False) is LISTENERS
    container.close()
    assert watched("demo.events", "", verbose=None) is LISTENERS
    monkeypatch.setattr(sys, "stderr", None)
    assert watched("demo.events", "", verbose=None) is LISTENERS


@pytest.mark.parametrize(
    ("option", "variable", "shown"),
    [
        (None, "", True),
        (None, "0", False),
        (None, "no", False),
        (False, "1", False),
        ("false", "", False),
        (True, "0", True),
    ],
)
def test_the_option_goes_before_the_variable(
    monkeypatch: pytest.MonkeyPatch, *, option: bool | str | None, variable: str, shown: bool
) -> None:
    with terminal() as written:
        assert written() == ""
        monkeypatch.setenv("LAKESINK_VERBOSE", variable)
        assert (watched("demo.events", "", verbose=option) is not LISTENERS) is shown


def test_a_variable_that_is_no_switch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESINK_VERBOSE", "loud")
    with pytest.raises(SettingsError, match=r"\[LAKESINK_SETTING_INVALID\] The variable LAKESINK_VERBOSE is 'loud'"):
        watched("demo.events", "", verbose=None)


@pytest.mark.dear
@pytest.mark.usefixtures("home")
def test_a_stream_whose_program_has_configured_logging_prints_its_lines_only_if_asked_to(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path / "in", 1)
    options: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "create_table": True}
    run(lakesink.stream(file_stream(spark, tmp_path / "in"), "demo.events", **options))
    assert "batch" not in capfd.readouterr().err
    write_files(tmp_path / "in", 1, first=1)
    run(lakesink.stream(file_stream(spark, tmp_path / "in"), "demo.events", **options, verbose=True))
    lines = capfd.readouterr().err.splitlines()
    matches(lines[:2], r"lakesink: demo\.events in .*, goes on with batch 1", rf"demo\.events  batch 1     {COMMITTED}")


NOBODY_READS = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import lakesink
from tests.spark.streams import file_stream, write_files

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
folder = Path(sys.argv[1])
write_files(folder / "in", 2)
options = {"sink_id": "events", "checkpoint": folder / "ck", "create_table": True, "verbose": True}
writer = lakesink.stream(file_stream(spark, folder / "in"), "demo.events", **options)
writer.trigger(availableNow=True).start().awaitTermination()
rows = spark.createDataFrame([(1,)], "id long")
done = lakesink.append(rows, "demo.loads", txn=("loads", 1), create_table=True, verbose=True)
print(type(done).__name__, [one.rows for one in lakesink.history("demo.events")])
"""


@pytest.mark.driver
def test_a_reader_that_has_gone_stops_neither_the_stream_nor_the_program(tmp_path: Path) -> None:
    """As in ``python job.py 2>&1 | head``, or where a collector of logs has died."""
    ours, theirs = os.pipe()
    os.close(ours)
    own = {"LAKESINK_HOME": str(tmp_path / "lakehouse"), "PYTHONPATH": str(Path(__file__).parents[2])}
    own["PYSPARK_PYTHON"] = sys.executable
    with os.fdopen(theirs, "wb") as broken:
        done = subprocess.run(
            [sys.executable, "-c", NOBODY_READS, str(tmp_path)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=broken,
            text=True,
            env=os.environ | own,
        )
    assert done.stdout.splitlines()[-1:] == ["Committed [10, 10]"]
