"""The contrast judges every sink by the same oracle: what it calls lost is lost, and a refusal is not a loss."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proof.contrast.cases import CASES, Case
from proof.contrast.engine import Engine
from proof.contrast.page import markdown, text
from proof.contrast.place import Place, rows_of
from proof.contrast.play import play
from proof.contrast.result import Ending, Result, judge
from proof.contrast.run import Contrast, broken_by
from proof.contrast.sinks import SINKS
from servers.jars import ROOT

BY_NAME = {case.name: case for case in CASES}
WELL = Result("replay", "lakesink", expected=300, found=300)


def no_rest() -> str:
    raise AssertionError("no REST catalog is needed here")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made(tmp_path, BY_NAME["replay"])


def made(root: Path, case: Case) -> Place:
    sql = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}
    place = Place(root, case, sql, sql, "lake", "demo.numbers")
    place.create()
    return place


@pytest.mark.nightly
def test_a_replayed_batch_is_doubled_by_an_append_and_not_by_lakesink(spark: Any, tmp_path: Path) -> None:
    naive, ours = (
        play(BY_NAME["replay"], sink, Engine(spark, ()), tmp_path, no_rest) for sink in ("append", "lakesink")
    )
    assert (naive.expected, naive.found, naive.doubled, naive.is_exact) == (300, 400, 100, False)
    assert (ours.expected, ours.found, ours.words, ours.asides) == (300, 300, "each row once", ())
    assert list(tmp_path.iterdir()) == []


def test_rows_that_were_sent_and_are_not_there_are_lost_unless_the_stream_says_that_it_stopped(place: Place) -> None:
    place.arrive([0])
    place.others_append()
    assert judge(place, "append", Ending()).words == "100 rows lost"
    stopped = judge(place, "append", Ending(stopped="SomeError"))
    assert (stopped.lost, stopped.waiting, stopped.words) == (0, 100, "stopped with SomeError, nothing lost or doubled")


def test_a_row_of_others_twice_is_doubled(place: Place) -> None:
    place.others_append()
    place.foreign = Counter({(9, 0): 1})
    place.load().append(place.load().scan().to_arrow())
    assert judge(place, "append", Ending()).words == "1 rows doubled"


def test_a_file_that_is_gone_is_seen(place: Place) -> None:
    place.others_append()
    [file] = place.root.rglob("*.parquet")
    file.unlink()
    found = judge(place, "append", Ending())
    assert (found.is_exact, found.lost) == (False, 1)
    assert "broken: every file that a retained snapshot references exists" in found.words


def test_rows_on_main_are_astray_where_a_branch_was_meant(tmp_path: Path) -> None:
    place = made(tmp_path, BY_NAME["branch-option"])
    place.sent = rows_of([0])
    place.main_moves()
    assert judge(place, "append", Ending()).words == "100 rows lost"
    rows = place.load().scan().to_arrow().schema.empty_table()
    columns = [list(column) for column in zip(*sorted(place.sent), strict=True)]
    place.load().append(rows.from_arrays(columns, schema=rows.schema))
    assert judge(place, "append", Ending()).words == "100 rows on main, not on the branch"


@pytest.mark.parametrize(
    ("result", "broken"),
    [
        (WELL, 0),
        (replace(WELL, doubled=100), 1),
        (replace(WELL, doubled=100, sink="append"), 0),
        (replace(WELL, stopped="LAKESINK_BATCH_CHANGED"), 1),
        (replace(WELL, case="batch-changed", stopped="LAKESINK_BATCH_CHANGED"), 0),
        (replace(WELL, case="batch-changed", stopped="LAKESINK_GAP"), 1),
        (replace(WELL, lost=1, stopped="LAKESINK_GAP"), 2),
    ],
)
def test_lakesink_may_stop_only_as_the_protocol_says_and_must_be_exact(result: Result, broken: int) -> None:
    assert len(broken_by(result)) == broken


def test_what_was_not_played_is_not_said_to_be_well() -> None:
    contrast = Contrast((replace(WELL, orphans=2),), ("killed of iceberg: no mvn",), {"lakesink": "0.1"}, 1.0)
    assert "each row once (2 orphan files)" in text(contrast)
    assert "Not run: killed of iceberg: no mvn" in text(contrast)
    assert "| not run | not run | not run | each row once (2 orphan files) [300 of 300] |" in markdown(contrast)


def test_the_published_page_has_every_case_and_every_sink() -> None:
    page = (ROOT / "docs/evidence/contrast.md").read_text()
    assert [case.name for case in CASES if f"(`{case.name}`). {case.story}" not in page] == []
    assert [sink.name for sink in SINKS.values() if f"| {sink.title} | {sink.how} |" not in page] == []
    assert "not run" not in page
