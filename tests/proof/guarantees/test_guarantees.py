"""The guarantee table is what real drivers came to when they were killed; its page is what was written of that."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proof.guarantees.__main__ import PAGE, published
from proof.guarantees.cells import KINDS, Blow, CellResult, Guarantee, Source
from proof.guarantees.page import markdown, text
from proof.guarantees.play import Plan, play, rows_of
from proof.guarantees.reader import Reader
from proof.guarantees.run import Guarantees
from proof.guarantees.sinks import WIRINGS, View
from servers.jars import ROOT

WELL = CellResult("lakesink", "REPLAYS", (Blow("after-call", 20, 0, 0),), 0, 0, looks=9, in_part=0, went_back=0)


@pytest.mark.nightly
def test_a_killed_batch_of_idempotent_writes_ends_well_and_shows_its_readers_older_values(
    spark: Any, tmp_path: Path
) -> None:
    plan = Plan("key-value", tuple(Source), ("example.half-written",))
    replays, forgets = play(plan, spark, tmp_path)
    assert (replays.lost, replays.doubled, replays.stopped) == (0, 0, "")
    assert replays.went_back, "the replay set a key back, and nobody saw it"
    assert replays.measured is Guarantee.IN_THE_END
    assert (forgets.lost, forgets.doubled, forgets.went_back) == (10, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_what_is_published_is_every_cell_and_every_kill_and_nothing_is_broken() -> None:
    found = published()
    assert [cell.of for cell in found.cells] == [(sink, source) for sink in KINDS for source in Source]
    assert all([blow.point for blow in cell.blows] == list(KINDS[cell.sink].points) for cell in found.cells)
    assert (found.broken, found.not_run) == ((), ())
    assert found.of(("key-value", Source.REPLAYS)).went_back  # type: ignore[union-attr] # every cell is there


def test_the_page_shows_what_the_last_run_came_to() -> None:
    assert PAGE.read_text() == markdown(published())


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
        ({"source": "FORGETS", "lost": 20}, Guarantee.AT_MOST_ONCE, False),
        ({"source": "FORGETS"}, Guarantee.EXACTLY_ONCE, True),
        ({"sink": "write-ahead-log", "doubled": 20}, Guarantee.AT_LEAST_ONCE, False),
        ({"sink": "write-ahead-log", "source": "FORGETS", "lost": 1, "doubled": 1}, Guarantee.NONE, False),
        ({"sink": "write-ahead-log", "source": "FORGETS", "lost": 1}, Guarantee.AT_MOST_ONCE, True),
    ],
)
def test_a_cell_is_called_by_what_was_counted_and_broken_where_that_is_not_the_promise(
    *, changed: dict[str, Any], measured: Guarantee, broken: bool
) -> None:
    cell = replace(WELL, **changed)
    assert (cell.measured, bool(cell.broken)) == (measured, broken)


def test_a_reader_notices_batches_in_part_and_values_that_go_back() -> None:
    first, second = rows_of(0), rows_of(1)
    half = Counter(dict(list(second.items())[:5]))
    views = [View(first, {0: 9}), View(first + half, {0: 14}), View(first + second, {0: 10}), View(first, {})]
    reader = Reader(lambda _: views.pop(0), Path(), [first, second], 0)
    for _ in range(4):
        reader.look()
    assert (reader.looks, reader.in_part) == (4, {1})
    assert reader.went_back == ["device 0 at reading 14, and then at reading 10"]


def test_the_terminal_is_told_of_every_kill_and_of_what_is_broken() -> None:
    cell = replace(WELL, blows=(Blow("after-call", 20, 0, 20),), doubled=20)
    shown = text(Guarantees((cell,), ("folders: no Java",), {"lakesink": "0.1"}, 1.0))
    assert "it has landed; its answer is not looked at: 20 doubled of 20" in shown
    assert "BROKEN lakesink, source can replay: promised exactly once, seen at least once" in shown
    assert "Not run: folders: no Java" in shown


def test_cells_that_were_not_played_keep_what_they_came_to() -> None:
    lost = replace(WELL, source="FORGETS", lost=20)
    earlier = Guarantees((replace(WELL, looks=1), lost), (), {"lakesink": "0.1"}, 1.0)
    both = Guarantees((WELL,), (), {"lakesink": "0.2"}, 2.0).together(earlier)
    assert (both.cells, both.versions) == ((WELL, lost), {"lakesink": "0.2"})
    assert Guarantees.from_json(both.to_json()) == both


def test_every_sink_of_the_table_is_wired_and_the_examples_name_their_code() -> None:
    assert WIRINGS.keys() == KINDS.keys()
    readme = (ROOT / "examples/guarantees/README.md").read_text()
    modules = {path.name for path in (ROOT / "examples/guarantees").glob("*.py")} - {"__init__.py"}
    assert [name for name in modules if f"[{name}]({name})" not in readme] == []
    assert all((ROOT / kind.code).exists() for kind in KINDS.values())
