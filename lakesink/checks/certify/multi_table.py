"""Checks the REST endpoint for commits of several tables: is it all or nothing, also with concurrent writers?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.table import CommitTableRequest, TableIdentifier

from lakesink.checks.certify.bench import KEY, Bench, next_batch
from lakesink.checks.certify.race import Attempt, shows
from lakesink.checks.certify.state import Sent
from lakesink.checks.offer import NO_ANSWER, Offer, fence_on, offer
from lakesink_catalog.commit.fence import FencedCommit
from lakesink_catalog.connect.rest import BoundedRestCatalog


@dataclass(frozen=True, slots=True)
class TwoTables:
    """Commits the next batch to two tables in one request."""

    names: tuple[str, str]
    ledger_tag: bool

    def __call__(self, catalog: Catalog) -> Attempt:
        """See `lakesink.checks.certify.race.Step`."""
        fences = [fence_on(catalog, name, KEY, ledger_tag=self.ledger_tag) for name in self.names]
        return partial(_attempt, catalog, fences)


def _attempt(catalog: Catalog, fences: Sequence[FencedCommit]) -> Sent:
    offers = [offer(fence, *next_batch(fence)) for fence in fences]
    ids = tuple(offered.snapshot_id for offered in offers)
    try:
        send(catalog, offers)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not a yes; the tables show the rest
        return Sent(ids, type(error).__name__, isinstance(error, NO_ANSWER))
    return Sent(ids, read_back=all(shows(fence, snapshot) for fence, snapshot in zip(fences, ids, strict=True)))


def send(catalog: Catalog, offers: Sequence[Offer]) -> None:
    """Send commits of several tables in one request."""
    assert isinstance(catalog, BoundedRestCatalog)
    catalog.commit_tables([_change(offered) for offered in offers])


def in_turn(benches: tuple[Bench, Bench]) -> str:
    """A request lands in both tables; if one table must refuse, it lands in none. Returns what went wrong, or nothing.

    Both tables must be empty.
    """
    pairs = list(zip(*(bench.offers() for bench in benches), strict=True))
    send(benches[0].mine, pairs[0])
    landed = [bench.state() for bench in benches]
    if any(state.head != offered.snapshot_id for state, offered in zip(landed, pairs[0], strict=True)):
        return "It accepted a commit of two tables that they do not both show."
    fresh = benches[0].offers(1)[0]
    try:
        send(benches[0].other, (fresh, pairs[1][1]))
    except NO_ANSWER:
        raise
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is a no
        benches[0].heard.append(type(error).__name__)
    else:
        return "It accepted a commit of two tables of which one asserted an old head."
    if [bench.state() for bench in benches] != landed:
        return "It refused a commit of two tables and yet changed one."
    return ""


def _change(offered: Offer) -> CommitTableRequest:
    *namespace, name = offered.table.name()
    return CommitTableRequest(
        identifier=TableIdentifier(namespace=namespace, name=name),
        requirements=offered.request.requirements,
        updates=offered.request.updates,
    )
