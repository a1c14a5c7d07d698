"""A scratch table with two connections, for checks of a catalog with single commits."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table.update import TableRequirement, TableUpdate

from lakesink.checks.certify.state import State, not_landed, not_refused
from lakesink.checks.doctor.scratch import remove
from lakesink.checks.offer import NO_ANSWER, Answered, Offer, fence_on, numbered_batch, offer, refused
from lakesink.checks.scratch_table import ScratchTable
from lakesink_catalog.commit.fence import FencedCommit, Look, Surroundings
from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_catalog.connect.errors import catalog_error
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.redact import safe_cause

KEY = SinkKey("certify")
QUERY = str(uuid.UUID(int=0))
NAMESPACE_PREFIX = "lakesink_certify_"


@dataclass(frozen=True, slots=True)
class Bench:
    """A scratch table, and two drivers with a connection each."""

    scratch: ScratchTable
    mine: Catalog
    other: Catalog
    ledger_tag: bool
    heard: list[str] = field(default_factory=list)  # names of the errors that refused a commit

    def state(self, catalog: Catalog | None = None) -> State:
        """What the table shows, through the first connection by default."""
        return read_state(catalog or self.mine, self.scratch.name)

    def offers(self, count: int = 2, snapshot_id: int | None = None) -> list[Offer]:
        """Build rival commits of the next batch on the current table; with fresh snapshot ids, unless one is given."""
        fence = fence_on(self.mine, self.scratch.name, KEY, ledger_tag=self.ledger_tag)
        if snapshot_id is not None:
            fence = replace(fence, surroundings=Surroundings(new_snapshot_id=lambda: snapshot_id))
        look, batch = next_batch(fence)
        return [offer(fence, look, batch) for _ in range(count)]

    def accepts(self, offered: Offer) -> str:
        """Send a commit that must land; returns what went wrong, or an empty string."""
        before = self.state()
        answered = self.ask(offered)
        if answered.refused_as:
            return f"It refused a commit that nothing speaks against: {answered.detail}."
        return not_landed(before, self.state(), offered.snapshot_id, ledger_tag=self.ledger_tag)

    def refuses(self, offered: Offer, what: str) -> str:
        """Send a commit that must not land, through the other connection; returns what went wrong, or an empty string.

        Args:
            offered: The commit.
            what: The commit in words.
        """
        before = self.state()
        answered = self.ask(offered, self.other)
        self.heard.append(answered.refused_as)
        return not_refused(before, self.state(), answered.refused_as, what)

    def ask(self, offered: Offer, catalog: Catalog | None = None) -> Answered:
        """Send a commit and return the answer; raises a `CatalogError` if there was none."""
        catalog = catalog or self.mine
        try:
            offered.send(catalog)
        except NO_ANSWER as error:
            failure: Exception = error
        except Exception as error:  # noqa: BLE001 - whatever else it is, it is a no
            return refused(offered.snapshot_id, error, catalog)
        else:
            return Answered(offered.snapshot_id, "")
        known = catalog.properties
        raise catalog_error(failure, f"The catalog {catalog.name!r}", known) from safe_cause(failure, known)


@contextmanager
def bench_in(found: FoundCatalog, catalog: Catalog, left: list[str], *, ledger_tag: bool) -> Iterator[Bench]:
    """Create a scratch table with two connections, and remove it afterwards.

    Args:
        found: The catalog, for the second connection.
        catalog: The first connection.
        left: Receives what could not be removed, and why.
        ledger_tag: Whether commits set lakesink's tag.
    """
    scratch = ScratchTable(catalog, NAMESPACE_PREFIX)
    try:
        scratch.create()
        yield Bench(scratch, catalog, found.open(create=False), ledger_tag)
    finally:
        left.extend(remove(scratch))


def next_batch(fence: FencedCommit) -> tuple[Look, Batch]:
    """The batch after the ledger's batch, and the decision that allows it."""
    table = fence.load()
    entry = view_table(table, fence.key).entry
    batch = numbered_batch(entry.batch_id + 1 if entry else 0, QUERY)
    return fence.decide_on(table, batch), batch


def read_state(catalog: Catalog, name: str) -> State:
    """Load a table and return what it shows."""
    table = load_table(catalog, name)
    view = view_table(table, KEY)
    return State(
        uuid=view.table_uuid,
        head=view.head,
        tag=view.tag_snapshot_id,
        entry=view.entry.snapshot_id if view.entry else None,
        snapshots=tuple((snapshot.snapshot_id, snapshot.parent_snapshot_id) for snapshot in table.metadata.snapshots),
    )


def altered(
    offered: Offer,
    requirements: Sequence[TableRequirement] | None = None,
    updates: Sequence[TableUpdate] | None = None,
) -> Offer:
    """The same offer with other requirements or updates."""
    request = offered.request
    changed = replace(
        request,
        requirements=request.requirements if requirements is None else tuple(requirements),
        updates=request.updates if updates is None else tuple(updates),
    )
    return replace(offered, request=changed)
