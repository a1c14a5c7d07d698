"""Figures of mutants say what was seen, what was not, and how soon."""

import json
from dataclasses import replace

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from proof.mutants.figures import MutantFigures, MutantResult, Start, table
from proof.mutants.run import run
from proof.mutants.sending import abort_deletes
from proof.mutants.simulated import catch

SEEN = MutantResult(
    name="some bug",
    breaks="P1",
    seen_in="the field",
    in_focus=3,
    simulated="BROKEN: no row is lost: 1 rows",
    starts=(Start(0, 10), Start(1000, 30), Start(2000, 20)),
    bound=100,
    scenario="killed",
    unsound=(),
    processes=("BROKEN: no row is doubled: 4 rows",),
)


def test_median_and_longest_way_are_of_all_starts() -> None:
    assert (SEEN.median_seeds, SEEN.most_seeds) == (20, 30)
    assert SEEN.seeds_told == "20 (most 30, of 3)"


def test_a_start_that_sees_nothing_counts_as_longer_than_all_others() -> None:
    once = replace(SEEN, starts=(Start(0, 10), Start(1000, None), Start(2000, 20)))
    assert once.seeds_told == "20 (most more than 100, of 3)"
    mostly = replace(SEEN, starts=(Start(0, 10), Start(1000, None), Start(2000, None)))
    assert mostly.median_seeds is None
    assert replace(SEEN, starts=()).seeds_told == "not measured"


def test_a_mutant_that_one_layer_misses_is_a_hole() -> None:
    unseen = replace(SEEN, processes=())
    figures = MutantFigures(0, 1.0, (SEEN, unseen))
    assert (figures.caught, len(figures.broken)) == (1, 1)
    assert "not seen" in table(figures).splitlines()[-1]


def test_a_scenario_that_is_broken_without_the_mutant_shows_nothing() -> None:
    figures = MutantFigures(0, 1.0, (replace(SEEN, unsound=("BROKEN: x: y",)),))
    assert SEEN.layers == ("simulator", "processes")
    assert figures.results[0].layers == ("simulator",)
    assert len(figures.broken) == 2


def test_figures_are_json() -> None:
    assert json.loads(json.dumps(MutantFigures(0, 1.0, (SEEN,)).to_json()))["results"][0]["median_seeds"] == 20


def test_without_mutants_and_starts_there_is_nothing_to_say() -> None:
    assert run(mutants=(), starts=0).results == ()


def test_a_mutant_is_in_the_product_within_its_block_and_no_longer() -> None:
    sound = IcebergSink.commit
    with abort_deletes.active():
        assert IcebergSink.commit is not sound
    assert IcebergSink.commit is sound
    assert catch(abort_deletes, ()) is None
