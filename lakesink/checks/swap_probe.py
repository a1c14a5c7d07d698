"""Tests compare-and-swap of a catalog with real commits on a scratch table.

Of two requests that assert the same head, at most one is accepted, and an accepted commit is in the table. A catalog
that breaks this promise loses or doubles batches without an error. Run the test before a stream uses the catalog.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from lakesink.checks.offer import Answered, Offer, answer, fence_on, numbered_batch, offer
from lakesink.checks.scratch_table import ScratchTable
from lakesink_catalog.commit.fence import FencedCommit
from lakesink_catalog.connect.errors import translated
from lakesink_catalog.read.view import view_table
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import Batch, SinkKey

NOT_ATOMIC = "LAKESINK_CATALOG_NOT_ATOMIC"
RACES = 5
NAMESPACE_PREFIX = "lakesink_doctor_"
_KEY = SinkKey("doctor")


@dataclass(frozen=True, slots=True)
class SwapProof:
    """Evidence that a catalog kept its promise."""

    refused_as: str  # name of the error that refused the second of two commits
    races: int  # pairs of concurrent commits of which one landed


def prove_swap(scratch: ScratchTable, connect: Callable[[], Catalog], *, ledger_tag: bool) -> SwapProof:
    """Send pairs of commits that assert the same head, first in turn, then concurrently.

    Args:
        scratch: Just created.
        connect: Opens the catalog again, as another driver would.
        ledger_tag: False to commit without lakesink's tag.

    Raises:
        CatalogError: `NOT_ATOMIC` if the promise is broken; another code if the catalog does not take such a commit.
    """
    fence = fence_on(scratch.catalog, scratch.name, _KEY, ledger_tag=ledger_tag)
    rivals = _Rivals(scratch, fence, (scratch.catalog, connect()))
    refused_as = rivals.in_turn(numbered_batch(0, _KEY.name))
    races = sum(rivals.at_once(numbered_batch(number, _KEY.name)) for number in range(1, RACES + 1))
    return SwapProof(refused_as, races)


def broken_promise(answers: Sequence[Answered], shown: set[int], head: int | None) -> str:
    """What a catalog did wrong with rival commits; empty if it kept its promise.

    Args:
        answers: One for each rival.
        shown: The table's snapshots afterwards.
        head: The branch's snapshot afterwards.
    """
    accepted = {answer.snapshot_id for answer in answers if not answer.refused_as}
    there = {answer.snapshot_id for answer in answers} & shown
    if len(accepted) > 1:
        return "It accepted two commits that asserted the same head, so that one of them is lost or both are in."
    if not accepted <= there:
        return "It accepted a commit that the table does not show."
    if len(there) > 1:
        return "The table shows two commits that asserted the same head."
    if there and head not in there:
        return "It moved the branch to another snapshot than the one that it accepted."
    return ""


@dataclass(frozen=True, slots=True)
class _Rivals:
    scratch: ScratchTable
    fence: FencedCommit
    catalogs: tuple[Catalog, Catalog]

    def in_turn(self, batch: Batch) -> str:
        """The first commit lands completely, the second is refused; returns the name of that error."""
        first, second = self._offers(batch)
        catalog, known = self.scratch.catalog, self.scratch.catalog.properties
        translated(f"The catalog {catalog.name!r}", known, lambda: first.send(catalog))
        landed = Answered(first.snapshot_id, "")
        self._check([landed])
        self._check_marks(landed.snapshot_id)
        rival = answer(catalog, second)
        self._check([landed, rival])
        return rival.refused_as

    def at_once(self, batch: Batch) -> bool:
        """True if one of the two landed; a cautious catalog may refuse both."""
        offers = self._offers(batch)
        with ThreadPoolExecutor(len(offers)) as pool:
            answers = list(pool.map(answer, self.catalogs, offers))
        return self._check(answers)

    def _offers(self, batch: Batch) -> list[Offer]:
        look = self.fence.look(batch)
        return [offer(self.fence, look, batch) for _ in self.catalogs]

    def _check(self, answers: Sequence[Answered]) -> bool:
        metadata = self.fence.load().metadata
        shown = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        branch = metadata.refs.get(_KEY.branch)
        broken = broken_promise(answers, shown, branch.snapshot_id if branch else None)
        if broken:
            raise _not_atomic(self.scratch.catalog, broken)
        return any(answer.snapshot_id in shown for answer in answers)

    def _check_marks(self, snapshot_id: int) -> None:
        view = view_table(self.fence.load(), _KEY)
        entry = view.entry.snapshot_id if view.entry else None
        if entry != snapshot_id:
            raise _not_atomic(self.scratch.catalog, "It accepted a commit and left out the table property in it.")
        if self.fence.options.ledger_tag and view.tag_snapshot_id != snapshot_id:
            raise _without_tags(self.scratch.catalog)


def _not_atomic(catalog: Catalog, what: str) -> CatalogError:
    return CatalogError(
        "CATALOG_NOT_ATOMIC",
        f"The catalog {catalog.name!r} does not keep its word. {what}",
        data="Only a table that was made for this question was touched.",
        action="Do not stream into this catalog: no writer can be exactly-once on it. Use a SQL or REST catalog whose"
        " commits are atomic.",
    )


def _without_tags(catalog: Catalog) -> CatalogError:
    return CatalogError(
        "CATALOG_WITHOUT_TAGS",
        f"The catalog {catalog.name!r} accepted a commit and left out the tag in it.",
        data="Only a table that was made for this question was touched.",
        action="Give streams ledger_tag=False; a rollback after expiry is then not noticed.",
    )
