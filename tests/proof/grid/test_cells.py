"""The grid leaves nothing out, and its figures count what it holds."""

import itertools

import pytest

from proof.grid.cells import (
    ANSWERS_OF_MAINTENANCE,
    BATCHES,
    BLOWS_OF_DOCUMENTS,
    BLOWS_OF_REPLAYED,
    BLOWS_OF_UPSERTS,
    COMMITS,
    DOCUMENTS,
    IN_CALL,
    MAINTAINED,
    NOWHERE,
    POINTS,
    POINTS_OF_COMMITS,
    POINTS_OF_MAINTENANCE,
    POINTS_OF_UPSERTS,
    REPLAYED,
    ROWS,
    UPSERTS,
    Blow,
    Cell,
    Company,
    Position,
    SparkBlow,
    all_cells,
)
from proof.grid.expect import expected
from proof.grid.figures import CellResult, GridFigures, RandomKills, Verdict
from proof.grid.page import renewed, text
from proof.grid.turns import SPARK_CELL_SECONDS, SPARK_SHARE, Turns, spread
from servers.fault_proxy import HttpFault, Kind

CELLS = all_cells()


def test_every_failpoint_meets_every_blow_at_every_batch_in_every_company() -> None:
    wanted = set(itertools.product(POINTS, Blow, Position, Company))
    assert wanted <= {(cell.point, cell.fault, cell.position, cell.company) for cell in CELLS}
    assert {position.value for position in Position} == set(range(BATCHES))


def test_every_failpoint_meets_every_kind_of_http_failure_at_every_batch_in_every_company() -> None:
    found = {
        (cell.point, _kind(cell), cell.position, cell.company) for cell in CELLS if isinstance(cell.fault, HttpFault)
    }
    assert set(itertools.product((*POINTS, NOWHERE), Kind, Position, Company)) <= found


def test_every_status_from_400_to_599_is_there_applied_and_not() -> None:
    faults = [cell.fault for cell in CELLS if isinstance(cell.fault, HttpFault)]
    found = {(fault.status, fault.applied) for fault in faults if fault.kind is Kind.STATUS}
    assert found == set(itertools.product(range(400, 600), (True, False)))


def test_every_process_of_spark_is_killed_at_every_failpoint_and_batch() -> None:
    found = {(cell.point, cell.fault, cell.position) for cell in CELLS if cell.on_spark and cell.kind == ROWS}
    assert found == set(itertools.product(POINTS, SparkBlow, Position))


def test_upserts_meet_each_blow_of_theirs_at_every_failpoint_and_batch_and_kills_in_the_call() -> None:
    found = {(cell.point, cell.fault, cell.position) for cell in CELLS if cell.kind == UPSERTS}
    in_call = itertools.product((IN_CALL,), (Blow.KILL,), Position)
    assert found == {*itertools.product(POINTS_OF_UPSERTS, BLOWS_OF_UPSERTS, Position), *in_call}


def test_documents_meet_each_blow_of_theirs_at_every_failpoint_and_batch() -> None:
    found = {(cell.point, cell.fault, cell.position) for cell in CELLS if cell.kind == DOCUMENTS}
    assert found == set(itertools.product(POINTS, BLOWS_OF_DOCUMENTS, Position))
    assert {cell.company for cell in CELLS if cell.kind == DOCUMENTS} == {Company.ALONE, Company.FOREIGN}


def test_streams_with_replays_are_struck_at_every_failpoint_and_killed_at_each_commit_of_a_batch() -> None:
    cells = [cell for cell in CELLS if cell.kind in REPLAYED]
    met = {(cell.point, cell.fault, cell.position) for cell in cells if cell.passage == 1}
    assert met == set(itertools.product(POINTS_OF_UPSERTS, BLOWS_OF_REPLAYED, Position))
    killed = {(cell.point, cell.position, cell.passage) for cell in cells if cell.fault is Blow.KILL}
    assert killed >= set(itertools.product(POINTS_OF_COMMITS, Position, range(1, len(COMMITS) + 1)))
    for kind in REPLAYED:
        assert {cell.point for cell in cells if cell.kind == kind} == {*POINTS_OF_UPSERTS}
        assert {cell.passage for cell in cells if cell.kind == kind} == {1, 2, 3}


def test_streams_that_maintain_their_tables_are_struck_in_that_at_every_batch() -> None:
    for kind in MAINTAINED:
        cells = [cell for cell in CELLS if cell.kind == kind]
        struck = {(cell.point, cell.fault, cell.position) for cell in cells if isinstance(cell.fault, Blow)}
        in_call = itertools.product((IN_CALL,), (Blow.KILL,), Position)
        assert struck == {*itertools.product(POINTS_OF_MAINTENANCE, BLOWS_OF_DOCUMENTS, Position), *in_call}
        assert {cell.fault for cell in cells} >= {*ANSWERS_OF_MAINTENANCE}
        assert {cell.request for cell in cells} == {2, 4, 6}, "the others are of batches"


def test_each_cell_is_there_once_has_an_expectation_and_few_are_only_explained() -> None:
    names = [cell.name for cell in CELLS]
    assert len(names) == len(set(names))
    explained = [cell for cell in CELLS if cell.unrunnable]
    assert 0 < len(explained) <= len(CELLS) * 0.05
    assert all(expected(cell).struck for cell in CELLS if not cell.unrunnable)


def test_only_an_applied_commit_hides_the_point_after_the_call() -> None:
    def struck(point: str, fault: HttpFault) -> frozenset[str | None]:
        return expected(Cell(point, fault, Position.FIRST, Company.ALONE)).struck

    assert struck("after-call", HttpFault(Kind.STATUS, applied=True, status=503)) == {None}
    assert struck("after-call", HttpFault(Kind.STATUS, applied=False, status=503)) == {""}
    assert struck(IN_CALL, HttpFault(Kind.LATE)) == {""}
    assert struck(NOWHERE, HttpFault(Kind.LATE)) == {None}


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_holds_something_of_each_row_and_column(seed: int) -> None:
    boxes = {(cell.point, cell.column) for cell in CELLS}
    first = spread(CELLS, seed)[: len(boxes)]
    assert {(cell.point, cell.column) for cell in first} == boxes
    assert sorted(map(repr, spread(CELLS, seed))) == sorted(map(repr, CELLS))


def test_cells_on_spark_get_their_share_of_the_time_and_all_are_run() -> None:
    cells = spread(CELLS, 0)
    turns = Turns.of(cells)
    taken = []
    while cell := turns.take():
        taken.append(cell)
        turns.took(cell, 25 if cell.on_spark else 0.5)
    assert sorted(map(repr, taken)) == sorted(map(repr, CELLS))
    begun = [number for number, cell in enumerate(taken) if cell.on_spark]
    assert begun[0] == SPARK_CELL_SECONDS / SPARK_SHARE / 0.5
    assert begun[1] > begun[0] + 1


def test_figures_count_faults_kills_orphans_and_times() -> None:
    http = next(cell for cell in CELLS if cell.column == "HTTP 5xx" and cell.point == "after-commit")
    blow = next(cell for cell in CELLS if cell.fault is Blow.KILL and cell.point == "after-call")
    gap = next(cell for cell in CELLS if cell.unrunnable)
    cells = (
        CellResult.of(http, Verdict.OK, kills=1, recovery_ms=10.0, log_lines=3),
        CellResult.of(blow, Verdict.BROKEN, ["a row is there twice"], kills=1, recovery_ms=30.0, orphans=1),
        CellResult.of(gap, Verdict.EXPLAINED, [gap.unrunnable]),
    )
    figures = GridFigures(7, "a server", whole=False, cells=cells, kills=RandomKills(drivers=2, recovery_ms=(20.0,)))
    assert figures.faults == 5  # a spoilt request and a death, a death, two at random
    assert figures.kills_by_point == {"after-commit": 1, "after-call": 1, "at random": 2}
    assert figures.orphans_per_1000_faults == 200
    assert (figures.recovery.median_ms, figures.recovery.count) == (20.0, 3)
    assert figures.logs_checked == 1
    assert figures.broken == [f"{blow.name}: a row is there twice"]
    assert figures.to_json()["cells"] == {"ok": 1, "explained": 1, "broken": 1}
    assert f"Explained (1): {gap.unrunnable}" in text(figures)
    assert f"BROKEN {blow.name}" in text(figures)
    assert "| after-call | 1 broken |" in renewed("", figures, "abc")


def test_cells_of_one_kind_of_stream_are_renewed_and_the_rest_of_the_page_stays() -> None:
    def figures(kind: str, verdict: Verdict, count: int) -> GridFigures:
        cells = [cell for cell in CELLS if cell.kind == kind][:count]
        return GridFigures(0, "", whole=False, cells=tuple(CellResult.of(cell, verdict) for cell in cells))

    upserts = sum(cell.kind == UPSERTS for cell in CELLS)
    rows = renewed("", figures("", Verdict.OK, 12), "abc")
    both = renewed(rows, figures("upserts", Verdict.BROKEN, upserts), "def")
    again = renewed(both, figures("upserts", Verdict.OK, upserts), "fed")
    assert both.startswith(rows)
    assert f"- Cells: 0 ok, 0 explained, {upserts} broken; every cell, seed 0" in both
    assert again.startswith(rows)
    assert "broken |" not in again
    assert f"- Run at `fed`.\n- Cells: {upserts} ok, 0 explained, 0 broken; every cell" in again
    assert renewed(again, figures("", Verdict.OK, 12), "abc") == again


def _kind(cell: Cell) -> Kind:
    assert isinstance(cell.fault, HttpFault)
    return cell.fault.kind
