"""The parts of the proof, each told in lines of one table."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median

from proof import certify, histories, kills
from proof.certify import CertifyFigures
from proof.contest.case import INTO_TABLES
from proof.contest.cases import CONTRAST
from proof.contest.run import Contest
from proof.contest.run import run as run_contest
from proof.contest.sinks import SINKS
from proof.grid.cells import Cell, all_cells
from proof.grid.figures import GridFigures, Verdict
from proof.grid.page import renewed
from proof.grid.run import run as run_grid
from proof.grid.turns import spread
from proof.model.page import pages as model_pages
from proof.model.run import ModelFigures
from proof.model.run import run as explore_model
from proof.model.spin import CannotCheck
from proof.mutants import run as mutants_run
from proof.outcome import Budget, Outcome, Part
from proof.provenance import PRODUCT, ROOT, commit
from proof.seam import run as seam
from proof.security.run import run as attack
from proof.simulator import advice
from proof.simulator.changing import draw_changes, draw_features
from proof.simulator.replays import ABSENT
from proof.simulator.run import Drawn, Simulated
from proof.simulator.run import run as run_simulator
from proof.simulator.side_advice import follow_in_turn

SEEDS, SEEDS_SHORT = 20_000, 1_000
"""Of a whole run, at least; and what every change is tried with."""
CHANGED_SEEDS, CHANGED_SEEDS_SHORT = 3_000, 60
"""The same of streams that replace and delete rows by key; `make prove` for longer does not run more of them."""
FEATURED_SEEDS, FEATURED_SEEDS_SHORT = 3_000, 60
"""The same of documents with changes, which bring columns, are put aside, logged and replayed."""
KILLS = 500
KILLS_BY_KEY, KILLS_BY_KEY_SHORT = 300, 12
"""SIGKILLs at random moments: of streams that append, and of those that replace and delete rows by key."""
INPUTS, INPUTS_SHORT = 1_000_000, 20_000
MORE_SEEDS = 10_000_000
ADVICE, ADVICE_SHORT = 600, 30
"""Histories whose operator follows every message."""
TARGETS, TARGETS_SHORT = 20_000, 2_000


def simulator(budget: Budget) -> Outcome:
    """Seeds until the time is used up, and in any case the least number of them."""
    result = run_simulator(*budget.seeds(SEEDS_SHORT if budget.short else SEEDS), progress=budget.progress)
    if not budget.short and result.well and budget.seconds > result.seconds:
        first, left = budget.seed + SEEDS + budget.share[0] * MORE_SEEDS, budget.seconds - result.seconds
        result = result.together(run_simulator(first, MORE_SEEDS, left, budget.progress))
    changed = _by_key(budget, CHANGED_SEEDS_SHORT if budget.short else CHANGED_SEEDS, draw_changes)
    featured = _by_key(budget, FEATURED_SEEDS_SHORT if budget.short else FEATURED_SEEDS, draw_features)
    ranges = {"": result, " of changes": changed, " of features": featured}
    broken = [
        f"seed {failure.seed}{kind}: {what}"
        for kind, one in ranges.items()
        for failure in one.failures
        for what in failure.broken
    ]
    document = result.to_json() | {"changes_by_key": changed.to_json(), "features": featured.to_json()}
    lines = (*_simulated(result), *_changed(changed), *_featured(featured))
    return Outcome(tuple(broken), (), lines, document)


def _by_key(budget: Budget, seeds: int, drawn: Drawn) -> Simulated:
    return run_simulator(*budget.seeds(seeds), progress=budget.progress, drawn=drawn)


def real_tables(budget: Budget) -> Outcome:
    """Random histories over SQLite and files."""
    try:
        done = histories.run(budget.seed, budget.seconds, budget.progress)
    except AssertionError as error:
        return Outcome((f"a history of a real table: {error}",))
    followed = advice.run(budget.seed, ADVICE_SHORT if budget.short else ADVICE, budget.progress, follow_in_turn)
    lines = (
        ("random histories over SQLite and real files", f"{done.histories:,} of {done.steps:,} judged steps"),
        (
            "histories whose operator follows every message",
            f"{followed.seeds:,}, {followed.followed:,} advices followed",
        ),
    )
    return Outcome(tuple(followed.broken), (), lines, done.to_json() | {"advice": followed.to_json()})


def processes(budget: Budget) -> Outcome:
    """The crash grid, and random kills."""
    cells: list[Cell] | None = None
    if budget.short:
        cells = spread(all_cells(), budget.seed)
    struck = 0 if budget.short else KILLS
    figures = run_grid(budget.seconds, budget.seed, budget.progress, cells=cells, kills=struck)
    few = figures.count(Verdict.EXPLAINED) * 20 <= len(figures.cells)
    broken = [*figures.broken, *([] if few else ["more than 5 % of the cells could not be run"])]
    missing = tuple(f"cells of the grid, {count}: {why}" for why, count in figures.explained.items())
    before = (ROOT / "docs/evidence/proof-grid.md").read_text()
    pages = {"proof-grid.md": renewed(before, figures, commit(*PRODUCT))}
    return Outcome(tuple(broken), missing, tuple(_grid(figures)), figures.to_json(), pages)


def changes(budget: Budget) -> Outcome:
    """Random kills of streams that replace and delete rows by key. It takes what it takes."""
    wanted = KILLS_BY_KEY_SHORT if budget.short else KILLS_BY_KEY
    first, count = budget.seeds(wanted)
    found = kills.run(count, first, budget.progress, by_key=True)
    lines = tuple((f"changes by key: {what}", figure) for what, figure in found.lines)
    return Outcome(found.broken, (), lines, asdict(found))


def targets(budget: Budget) -> Outcome:
    """Batches of several targets through the coordinator alone."""
    done = seam.run(budget.seed, TARGETS_SHORT if budget.short else TARGETS, 0.0, budget.progress)
    what = (
        f"{done.histories:,}; {done.drivers:,} drivers, of which {done.deaths:,} died and {done.rivals:,} were rivals"
    )
    lines = (("histories of batches with several targets, and deletes", what),)
    return Outcome(tuple(done.broken), (), lines, done.to_json())


def catalogs(budget: Budget) -> Outcome:
    """Whether catalogs keep what the protocol needs of them."""
    figures = certify.run(budget.seconds, budget.seed, budget.progress)
    broken = tuple(f"{name}: {verdict.value}" for name, verdict in figures.unexpected.items())
    missing = tuple(f"{name}: {why}" for name, why in figures.skipped.items())
    return Outcome(broken, missing, tuple(_certified(figures)), figures.to_json())


def mutants(budget: Budget) -> Outcome:
    """Seeded bugs, which the simulator and real processes must see."""
    starts, seed = (0, 0) if budget.short else (mutants_run.STARTS, budget.seed)
    figures = mutants_run.run(budget.seconds, seed, budget.progress, starts=starts)
    lines = [("seeded bugs seen by the simulator and by real processes", f"{figures.caught} of {len(figures.results)}")]
    seen = sum(not one.broken for one in figures.tested)
    lines.append(("seeded bugs that a test of the product sees", f"{seen} of {len(figures.tested)}"))
    medians = [one.median_seeds for one in figures.results if one.median_seeds is not None]
    if medians:
        lines.append(
            ("seeds until a bug is seen", f"median of medians {median(medians):,.0f}, most {max(medians):,.0f}")
        )
    return Outcome(figures.broken, (), tuple(lines), figures.to_json())


def security(budget: Budget) -> Outcome:
    """Hostile inputs, and secrets planted everywhere."""
    first, inputs = budget.seeds(INPUTS_SHORT if budget.short else INPUTS)
    is_first = budget.share[0] == 1
    figures = attack(
        inputs,
        first,
        budget.progress,
        processes=os.cpu_count() or 1,
        canary=is_first,
        spark=is_first and not budget.short,
    )
    broken = [f"{defect.what}: {defect.replay}" for defect in figures.defects]
    told = f"{figures.inputs:,}: {figures.accepted:,} safe to believe, {figures.written_again:,} written again"
    lines = [("hostile inputs", f"{told}, {counted(figures.refused)}")]
    if figures.canary is not None:
        broken += [*figures.canary.leaks, *figures.canary.unnamed]
        searched = sum(figures.canary.outputs.values())
        lines.append(("planted secrets", f"{figures.canary.places} places, {searched:,} bytes searched, none seen"))
    return Outcome(tuple(broken), (), tuple(lines), figures.to_json())


def model(budget: Budget) -> Outcome:
    """The formal model: explored whole, and without each of its rules. It takes what it takes."""
    try:
        figures = explore_model(None, budget.seed, budget.progress, short=budget.short)
    except CannotCheck as reason:
        return Outcome(missing=(f"the formal model: {reason}",))
    pages = {} if budget.short else model_pages(figures)
    return Outcome(figures.broken, (), tuple(_explored(figures)), figures.to_json(), pages)


def contrast(budget: Budget) -> Outcome:
    """The same oracle over other ways to write a stream. Its cases are the same in each run."""
    if budget.short:
        return Outcome(missing=("the contrast: it takes longer than a short run has",))
    figures = run_contest(budget.progress, CONTRAST, [SINKS[name] for name in INTO_TABLES], budget.seconds)
    lines = tuple((f"cases of the contrast, {name}", _exactness(figures, name)) for name in INTO_TABLES)
    return Outcome(figures.broken, figures.not_run, lines, figures.to_json())


def _exactness(figures: Contest, sink: str) -> str:
    results = [result for result in figures.results if result.sink == sink]
    wrong = [result for result in results if not result.is_exact]
    lost, doubled = sum(result.lost for result in wrong), sum(result.doubled for result in wrong)
    return f"{len(results)}: {len(results) - len(wrong)} exact; {lost:,} rows lost, {doubled:,} doubled in the others"


def _simulated(result: Simulated) -> list[tuple[str, str]]:
    last = result.first + result.seeds - 1
    return [
        ("simulated worlds", f"{result.seeds:,} seeds, {result.first:,} to {last:,}, {result.seeds_per_second:.0f}/s"),
        ("batches in their tables", f"{result.batches:,}"),
        ("foreign commits", f"{result.foreign_commits:,}"),
        ("rows expected / lost / doubled", f"{result.rows:,} / {result.lost:,} / {result.doubled:,}"),
        ("rows of them put aside as dead letters, simulated", f"{result.letters:,}"),
        ("commits of batches that changed the schema, simulated", f"{result.evolutions:,}"),
        ("faults by kind", counted(result.faults)),
        ("deeds of operators and others", counted(result.done)),
        ("commits of unknown outcome", f"{result.unknown:,}: {result.unknown_landed:,} had landed, none counted wrong")
        if result.well
        else ("commits of unknown outcome", f"{result.unknown:,}: {result.unknown_landed:,} had landed"),
        ("orphans per 1,000 faults, simulated", f"{1000 * result.orphans / max(result.faults.total(), 1):.0f}"),
    ]


def _changed(result: Simulated) -> list[tuple[str, str]]:
    last = result.first + result.seeds - 1
    return [
        (
            "simulated worlds of changes by key",
            f"{result.seeds:,} seeds, {result.first:,} to {last:,}, {result.seeds_per_second:.0f}/s",
        ),
        ("what became of these changes", counted(result.changes)),
        ("foreign commits to their tables", f"{result.foreign_commits:,}"),
    ]


def _featured(result: Simulated) -> list[tuple[str, str]]:
    last = result.first + result.seeds - 1
    what = f"{result.letters:,} changes put aside; {result.evolutions:,} batches changed the schema"
    done = f"{result.outcomes['replay done']:,} replays to their end, {result.outcomes['replay: ' + ABSENT]:,} refused"
    return [
        (
            "simulated worlds of documents with changes",
            f"{result.seeds:,} seeds, {result.first:,} to {last:,}, {result.seeds_per_second:.0f}/s",
        ),
        ("what became of these documents", f"{what}; {done}"),
    ]


def _grid(figures: GridFigures) -> list[tuple[str, str]]:
    verdicts = {verdict.value: figures.count(verdict) for verdict in Verdict}
    extent = "whole" if figures.whole else f"a sample of {len(all_cells()):,}"
    return [
        ("crash grid on real processes", f"{counted(verdicts)} cells, {extent}"),
        ("SIGKILLs by point", f"{sum(figures.kills_by_point.values()):,}: {counted(figures.kills_by_point)}"),
        ("SIGKILL to next commit, without Spark", figures.recovery.told),
        ("SIGKILL to next commit, real Spark", figures.spark_recovery.told),
        ("orphans per 1,000 faults, real processes", f"{figures.orphans_per_1000_faults:,}"),
        ("traces of real drivers that the model accepts", f"{figures.logs_checked:,}"),
    ]


def _explored(figures: ModelFigures) -> list[tuple[str, str]]:
    harmful = sum(bool(one.breaks) for one in figures.switches)
    accepted = figures.stories - len(figures.refused_stories)
    return [
        ("states of the formal model", f"{figures.states:,} in {len(figures.configurations)} configurations"),
        (
            "rules of the protocol switched off in the model",
            f"{len(figures.switches)}: {harmful} with a counterexample, {len(figures.switches) - harmful} harmless",
        ),
        (
            "stories of the model that the checker of traces accepts",
            f"{accepted} of {figures.stories}",
        ),
    ]


def _certified(figures: CertifyFigures) -> list[tuple[str, str]]:
    verdicts = Counter(certificate.verdict.value for certificate in figures.certificates.values())
    return [("catalogs", f"{', '.join(figures.certificates)}: {counted(verdicts)}")]


def counted(counts: Mapping[str, int]) -> str:
    """Counts by name, the largest first, as one line."""
    return ", ".join(f"{count:,} {name}" for name, count in Counter(counts).most_common() if count) or "none"


PARTS: Mapping[str, tuple[float, Part]] = {
    "simulator": (0.25, simulator),
    "targets": (0.0, targets),
    "real tables": (0.1, real_tables),
    "processes": (0.3, processes),
    "changes": (0.0, changes),
    "mutants": (0.1, mutants),
    "model": (0.1, model),
    "catalogs": (0.05, catalogs),
    "security": (0.05, security),
    "contrast": (0.1, contrast),
}
"""Each with its share of the time."""
SEEDED = ("simulator", "changes", "security")
"""Those that can be cut anywhere: slices share their seeds. The others are whole."""
