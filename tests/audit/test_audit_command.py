"""`lakesink audit` as a person and a script see it: words, JSON, exit codes, and nothing of others on the terminal."""

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakesink_tools.audit.finding import Code
from testkit.builders import TABLE, Chance, Lake, Stream, contents
from testkit.maintenance import append_foreign, edit_metadata, set_property
from tests.audit.terminal import Run, found, refused
from tests.audit.test_checkpoints import checkpoint

JSON = ("--output", "json")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def stream(lake: Lake) -> Stream:
    """Four batches of three rows."""
    return Stream(lake, chance=Chance(now=itertools.count(time.time_ns() // 1_000_000 - 60_000, 1000))).filled(4)


def test_a_clean_table_ends_with_0(run: Run, lake: Lake, stream: Stream, tmp_path: Path) -> None:
    assert stream.writes == 4
    before = contents(lake)
    result = run("audit", "--checkpoint", checkpoint(tmp_path / "c", range(4)))
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0] == f"{TABLE} in test: clean: 4 batches, each there once, whole and readable"
    assert lines[2].split()[:6] == ["events", "main", "3", "0", "4", "12"]
    assert lines[3].startswith("note: events into main: Every batch that Spark completed is in the table, up to 3;")
    assert lines[4].startswith("Checked 4 snapshots, 4 manifests, and sizes and footers of 4 files (")
    assert lines[5].startswith(f"Next: lakesink log {TABLE} --catalog test shows the batches")
    assert contents(lake) == before


def test_a_dropped_table_is_not_to_be_created_where_a_checkpoint_shows_its_batches(
    run: Run, lake: Lake, stream: Stream, tmp_path: Path
) -> None:
    assert stream.writes == 4
    lake.catalog.drop_table(TABLE)
    root = checkpoint(tmp_path / "c", range(4))
    error = refused(run("audit", "--checkpoint", root, *JSON))
    assert error["code"] == "LAKESINK_TABLE_MISSING"
    assert "committed batches up to 3" in error["what"]
    assert "The rows up to batch 3 were in a table" in error["data"]
    advice = [line for line in run("audit", "--checkpoint", root).stderr.splitlines() if line.startswith("    - ")]
    assert [
        next(word for word in ("--catalog", "renamed", "restore it", "new checkpoint") if word in line)
        for line in advice
    ] == ["--catalog", "renamed", "restore it", "new checkpoint"]


@pytest.mark.parametrize("options", [(), ("--checkpoint", "of no batch")])
def test_a_table_that_perhaps_never_was_is_not_to_be_created_by_who_only_reads(
    run: Run, lake: Lake, tmp_path: Path, options: tuple[str, ...]
) -> None:
    lake.catalog.drop_table(TABLE)
    root = checkpoint(tmp_path / "c", ())
    error = refused(run("audit", *(root if option == "of no batch" else option for option in options), *JSON))
    assert error["data"] == "This command only reads; nothing was changed."
    assert "a dropped or renamed table is not found" in error["action"]
    assert "create_table" not in error["action"]


def test_the_same_as_json(run: Run, lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    document = found(run("audit", *JSON))
    size = sum(path.stat().st_size for path in lake.files() if path.suffix == ".parquet")
    assert document["well"] is True
    assert (document["findings"], document["notes"]) == ([], [])
    assert document["looked_at"] == {
        "snapshots": 4,
        "manifests": 4,
        "files": 4,
        "bytes": size,
        "footers": True,
        "unchecked": 0,
        "history_kept": True,
    }
    assert document["sinks"][0]["batches"] == 4
    assert found(run("audit", "--skip-footers", *JSON))["looked_at"]["footers"] is False


def test_a_finding_ends_with_1_what_it_means_and_what_to_do(run: Run, lake: Lake, stream: Stream) -> None:
    set_property(lake, stream.key.ledger_property, None)
    lines = run("audit").stdout.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("[LEDGER_LOST]"))
    assert lines[0].endswith(": 1 finding")
    assert lines[place + 1 : place + 3] == [
        f"  It means: {Code.LEDGER_LOST.means}",
        f"  Do: {Code.LEDGER_LOST.action}",
    ]
    assert lines[-1] == "Next: correct the findings, from the top, and run lakesink audit again."
    document = found(run("audit", *JSON), 1)
    assert document["well"] is False
    assert document["findings"][0]["code"] == "LEDGER_LOST"
    assert document["findings"][0]["action"] == Code.LEDGER_LOST.action


def test_many_findings_of_a_kind_are_cut_in_words_only(run: Run, lake: Lake) -> None:
    Stream(lake).filled(8)
    edit_metadata(lake, lambda found: [one["summary"].update({"added-records": "9"}) for one in found["snapshots"]])
    text = run("audit", "--sink", "events").stdout
    assert text.count("[SUMMARY_DISAGREES]") == 6
    assert "more; --output json has all." in text
    assert sum(one["code"] == "SUMMARY_DISAGREES" for one in found(run("audit", *JSON), 1)["findings"]) >= 8


def test_what_could_not_be_looked_at_ends_with_2(run: Run, lake: Lake, stream: Stream) -> None:
    assert stream.writes == 4
    path = next(path for path in lake.files() if path.suffix == ".parquet")
    path.unlink()
    path.mkdir()
    assert "no finding, but 1 file could not be checked" in run("audit").stdout
    assert found(run("audit", *JSON), 2)["looked_at"]["unchecked"] == 1


def test_a_table_that_no_stream_wrote_to_ends_with_1(run: Run, lake: Lake) -> None:
    append_foreign(lake)
    result = run("audit")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{TABLE} in test: no lakesink stream has written to it")


def test_an_unknown_sink_is_refused_with_the_nearest(run: Run, stream: Stream) -> None:
    assert stream.sink_id == "events"
    error = refused(run("audit", "--sink", "event", *JSON))
    assert error["code"] == "LAKESINK_SINK_UNKNOWN"
    assert "Did you mean 'events'?" in error["action"]


def test_what_is_no_checkpoint_ends_with_2(run: Run, stream: Stream, tmp_path: Path) -> None:
    assert stream.writes == 4
    error = refused(run("audit", "--checkpoint", tmp_path / "nowhere", *JSON))
    assert error["code"] == "LAKESINK_CHECKPOINT_UNREADABLE"


def test_nothing_that_others_wrote_reaches_the_terminal_as_control_code(run: Run, lake: Lake, stream: Stream) -> None:
    evil = "[red]x[/red]\x1b[31m\u202e\x07"

    def forge(metadata: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        for number, snapshot in enumerate(metadata["snapshots"]):
            names = {"lakesink.sink-id": evil, "lakesink.query-id": evil, "lakesink.batch-id": str(number * 5)}
            snapshot["summary"].update(names | {"lakesink.accepted": evil})

    assert stream.writes == 4
    edit_metadata(lake, forge)
    result = run("audit")
    assert result.exit_code == 1
    assert "[red]x[/red]" in result.stdout
    assert not {"\x1b", "\u202e", "\x07"} & set(result.stdout)
    assert not {"\x1b", "\u202e", "\x07"} & set(run("audit", *JSON).stdout)


WITHOUT_SPARK = """
import sys
import time
sys.modules["pyspark"] = sys.modules["py4j"] = None  # as if they were not installed
from lakesink_tools.audit.checkpoint import read_done
print(read_done(sys.argv[1]).batches)
"""


def test_a_checkpoint_is_read_without_spark(tmp_path: Path) -> None:
    root = checkpoint(tmp_path / "c", range(3))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, root], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.stdout, done.stderr) == ("(0, 1, 2)\n", "")


def test_the_page_explains_every_code() -> None:
    page = (ROOT / "docs/operate/audit.md").read_text()
    for code in Code:
        assert f"| `{code.name}` | {code.means} |" in page, code.name
