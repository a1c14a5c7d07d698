"""Tests compare-and-swap of a catalog with the commits of two rival drivers.

Of two requests that assert the same head, at most one is accepted, and an accepted commit is in the table. A catalog
that breaks this promise loses or doubles batches without an error. Run the test before a stream uses the catalog.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lakesink.checks.bench import Bench, answer, send
from lakesink.checks.certify.state import Sent, State, broken_promise
from lakesink_catalog.connect.errors import translated
from lakesink_protocol.errors import CatalogError

NOT_ATOMIC = "LAKESINK_CATALOG_NOT_ATOMIC"
RACES = 5


def prove_swap(bench: Bench) -> str:
    """Send pairs of commits that assert the same head, first in turn, then concurrently; returns the proof in words.

    Raises a `CatalogError`: `NOT_ATOMIC` if the promise is broken; another code if the catalog takes no such commit.
    """
    refused_as = _in_turn(bench)
    races = sum(_at_once(bench) for _ in range(RACES))
    return f"the second of two commits on one head was refused ({refused_as}); {races} races, one winner each"


def _in_turn(bench: Bench) -> str:
    """The first commit lands completely, the second is refused; returns the name of that error."""
    first, second = bench.offers()
    translated(f"The catalog {bench.mine.name!r}", bench.mine.properties, lambda: send(bench.mine, first))
    landed = Sent((first.snapshot_id,))
    state = _checked(bench, [landed])
    if state.entry != first.snapshot_id:
        raise _not_atomic(bench, "It accepted a commit and left out the table property in it.")
    if bench.ledger_tag and state.tag != first.snapshot_id:
        raise _broken(
            "CATALOG_WITHOUT_TAGS",
            f"The catalog {bench.mine.name!r} accepted a commit and left out the tag in it.",
            "Give streams ledger_tag=False; a rollback after expiry is then not noticed.",
        )
    rival = answer(bench.mine, second)
    _checked(bench, [landed, rival])
    return rival.refused_as


def _at_once(bench: Bench) -> bool:
    """True if one of the two landed; a cautious catalog may refuse both."""
    with ThreadPoolExecutor(2) as pool:
        rivals = list(pool.map(answer, (bench.mine, bench.other), bench.offers()))
    shown = dict(_checked(bench, rivals).snapshots)
    return any(snapshot_id in shown for sent in rivals for snapshot_id in sent.snapshot_ids)


def _checked(bench: Bench, rivals: Sequence[Sent]) -> State:
    state = bench.state()
    if broken := broken_promise(rivals, state):
        raise _not_atomic(bench, broken)
    return state


def _not_atomic(bench: Bench, what: str) -> CatalogError:
    return _broken(
        "CATALOG_NOT_ATOMIC",
        f"The catalog {bench.mine.name!r} does not keep its word. {what}",
        "Do not stream into this catalog: no writer can be exactly-once on it. Use a SQL or REST catalog whose"
        " commits are atomic.",
    )


def _broken(code: str, what: str, action: str) -> CatalogError:
    return CatalogError(code, what, data="Only a table that was made for this question was touched.", action=action)
