"""The contest judges every sink by the same oracle: what it calls lost is lost, and its pages are what was counted."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proof.contest.__main__ import published
from proof.contest.case import Case
from proof.contest.cases import CASES, GUARANTEES
from proof.contest.page import PAGES, Page, contrast, text
from proof.contest.place import Place
from proof.contest.play import play
from proof.contest.reader import Reader
from proof.contest.result import Blow, Ending, Result, judge
from proof.contest.run import Contest, broken_by
from proof.contest.sinks import SINKS, Guarantee
from proof.contest.target import View
from servers.jars import ROOT

WELL = Result("replay", "lakesink", expected=300, found=300)
KILLED = Result("replays", "lakesink", 40, 40, blows=(Blow("after-call", 20, 0, 0),), looks=9)
APPEND = SINKS["append"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made(tmp_path, CASES["replay"])


def made(root: Path, case: Case) -> Place:
    sql = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}
    place = Place(root, case, sql, sql, "lake", "demo.numbers")
    place.create()
    return place


@pytest.mark.nightly
def test_a_replayed_batch_is_doubled_by_an_append_and_not_by_lakesink(spark: Any, tmp_path: Path) -> None:
    [naive], [ours] = (play([CASES["replay"]], SINKS[name], spark, tmp_path) for name in ("append", "lakesink"))
    assert (naive.expected, naive.found, naive.doubled, naive.is_exact) == (300, 400, 100, False)
    assert (ours.expected, ours.found, ours.words, ours.aside) == (300, 300, "each row once", "")
    assert list(tmp_path.iterdir()) == []


def test_rows_that_were_sent_and_are_not_there_are_lost_unless_the_stream_says_that_it_stopped(place: Place) -> None:
    place.arrive([0])
    place.others_append()
    assert judge(place, APPEND, Ending()).words == "100 rows lost"
    stopped = judge(place, APPEND, Ending(stopped="SomeError"))
    assert (stopped.lost, stopped.waiting, stopped.words) == (0, 100, "stopped with SomeError, nothing lost or doubled")


def test_a_row_of_others_twice_is_doubled(place: Place) -> None:
    place.others_append()
    place.foreign = Counter({(9, 0): 1})
    place.load().append(place.load().scan().to_arrow())
    assert judge(place, APPEND, Ending()).words == "1 rows doubled"


def test_a_file_that_is_gone_is_seen(place: Place) -> None:
    place.others_append()
    [file] = place.root.rglob("*.parquet")
    file.unlink()
    found = judge(place, APPEND, Ending())
    assert (found.is_exact, found.lost) == (False, 1)
    assert "broken: every file that a retained snapshot references exists" in found.words


def test_rows_on_main_are_astray_where_a_branch_was_meant(tmp_path: Path) -> None:
    place = made(tmp_path, CASES["branch-option"])
    place.sent = place.batch(0)
    place.main_moves()
    assert judge(place, APPEND, Ending()).words == "100 rows lost"
    rows = place.load().scan().to_arrow().schema.empty_table()
    columns = [list(column) for column in zip(*sorted(place.sent), strict=True)]
    place.load().append(rows.from_arrays(columns, schema=rows.schema))
    assert judge(place, APPEND, Ending()).words == "100 rows on main, not on the branch"


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
    contest = Contest((replace(WELL, orphans=2),), ("killed of iceberg: no mvn",), {"lakesink": "0.1"}, 1.0)
    assert "each row once (2 orphan files)" in text(contest)
    assert "Not run: killed of iceberg: no mvn" in text(contest)
    row = "| replay on main | not run | not run | not run | each row once (2 orphan files) [300 of 300] |"
    assert row in contrast(contest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_shows_what_the_last_run_came_to(page: Page) -> None:
    written = (ROOT / "docs/evidence" / page.name).read_text()
    assert page.renewed(written, published(page)) == written
    assert "not run" not in written


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_published_is_every_case_of_every_sink_and_nothing_is_broken(page: Page) -> None:
    found = published(page)
    expected = {(case.name, sink) for case in page.cases for sink in case.sinks}
    assert {(result.case, result.sink) for result in found.results} == expected
    assert (found.broken, found.not_run) == ((), ())


@pytest.mark.nightly
def test_a_killed_batch_of_idempotent_writes_ends_well_and_shows_its_readers_older_values(
    spark: Any, tmp_path: Path
) -> None:
    sink = replace(SINKS["key-value"], points={"example.half-written": "half of the rows are written"})
    replays, forgets = play(GUARANTEES, sink, spark, tmp_path)
    assert (replays.lost, replays.doubled, replays.stopped) == (0, 0, "")
    assert replays.went_back, "the replay set a key back, and nobody saw it"
    assert replays.measured is Guarantee.IN_THE_END
    assert (forgets.lost, forgets.doubled, forgets.went_back) == (10, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_every_kill_of_every_sink_is_published() -> None:
    found = published(PAGES[1])
    killed = [(result.sink, [blow.point for blow in result.blows]) for result in found.results]
    assert killed == [(sink, list(SINKS[sink].points)) for sink in GUARANTEES[0].sinks for _ in GUARANTEES]
    assert any(result.went_back for result in found.results if (result.case, result.sink) == ("replays", "key-value"))


@pytest.mark.parametrize(
    ("changed", "measured", "broken"),
    [
        ({}, Guarantee.EXACTLY_ONCE, False),
        ({"lost": 1}, Guarantee.AT_MOST_ONCE, True),
        ({"doubled": 1}, Guarantee.AT_LEAST_ONCE, True),
        ({"lost": 1, "doubled": 1}, Guarantee.NONE, True),
        ({"in_part": 1}, Guarantee.IN_THE_END, True),
        ({"went_back": 1}, Guarantee.IN_THE_END, True),
        ({"stopped": "SomeError"}, Guarantee.EXACTLY_ONCE, True),
        ({"case": "forgets", "lost": 20}, Guarantee.AT_MOST_ONCE, False),
        ({"case": "forgets"}, Guarantee.EXACTLY_ONCE, True),
        ({"sink": "write-ahead-log", "doubled": 20}, Guarantee.AT_LEAST_ONCE, False),
        ({"sink": "write-ahead-log", "case": "forgets", "lost": 1, "doubled": 1}, Guarantee.NONE, False),
        ({"sink": "write-ahead-log", "case": "forgets", "lost": 1}, Guarantee.AT_MOST_ONCE, True),
    ],
)
def test_a_killed_sink_is_called_by_what_was_counted_and_broken_where_that_is_not_the_promise(
    *, changed: dict[str, Any], measured: Guarantee, broken: bool
) -> None:
    result = replace(KILLED, **changed)
    assert (result.measured, bool(broken_by(result))) == (measured, broken)


def test_a_reader_notices_batches_in_part_and_values_that_go_back(tmp_path: Path) -> None:
    place = made(tmp_path, GUARANTEES[0])
    first, second = place.batch(0), place.batch(1)
    half = Counter(dict(list(second.items())[:5]))
    reader = Reader(place, SINKS["key-value"])
    for view in (
        View(first, {0: 9}),
        View(first + half, {0: 14}),
        View(first + second, {0: 10}),
        View(first, {}),
    ):
        reader.saw(view)
    assert (reader.looks, reader.in_part) == (4, {1})
    assert reader.went_back == ["device 0 at reading 14, and then at reading 10"]


def test_a_target_that_could_not_be_read_stops_the_case(place: Place) -> None:
    place.arrive([0])
    reader = Reader(place, SINKS["lakesink"], failures=["OSError: no"])
    assert judge(place, SINKS["lakesink"], Ending(), reader).stopped == "OSError: no"


def test_the_terminal_is_told_of_every_kill_and_of_what_is_broken() -> None:
    result = replace(KILLED, blows=(Blow("after-call", 20, 0, 20),), doubled=20)
    shown = text(Contest((result,), ("folders: no Java",), {"lakesink": "0.1"}, 1.0))
    assert "it has landed; its answer is not looked at: 20 doubled of 20" in shown
    assert "BROKEN replays of lakesink: promised exactly once, seen at least once" in shown
    assert "Not run: folders: no Java" in shown


def test_what_was_not_played_keeps_what_it_came_to() -> None:
    lost = replace(KILLED, case="forgets", lost=20)
    earlier = Contest((replace(KILLED, looks=1), lost), (), {"lakesink": "0.1"}, 1.0)
    both = Contest((KILLED,), (), {"lakesink": "0.2"}, 2.0).together(earlier)
    assert (both.results, both.versions) == ((KILLED, lost), {"lakesink": "0.2"})
    assert Contest.from_json(json.loads(json.dumps(both.to_json()))) == both


def test_the_examples_name_their_code_and_the_list_of_sinks_knows_it() -> None:
    readme = (ROOT / "examples/guarantees/README.md").read_text()
    modules = {path.name for path in (ROOT / "examples/guarantees").glob("*.py")} - {"__init__.py"}
    assert [name for name in modules if f"[{name}]({name})" not in readme] == []
    assert all((ROOT / SINKS[name].code).is_file() for name in GUARANTEES[0].sinks)
