"""Does a catalog keep the one promise that lakesink builds on? Asked with real commits, on a table made for it.

The promise: of two requests that assert the same head at most one is accepted, and what was accepted is there. A
catalog that breaks it loses or doubles batches in silence, so this is asked before a stream is trusted to it.
"""

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from lakesink_catalog.catalog_errors import translated
from lakesink_catalog.commit import FencedCommit, Surroundings
from lakesink_catalog.errors import CatalogError
from lakesink_catalog.identity import Batch, SinkKey, stream_batch
from lakesink_catalog.merging import ManifestMerger
from lakesink_catalog.redact import describe
from lakesink_catalog.request import Change, CommitOptions, Request, build_request
from lakesink_catalog.tables import create_table, load_table
from lakesink_catalog.verdict import Commit
from lakesink_catalog.view import view_table

NOT_ATOMIC = "LAKESINK_CATALOG_NOT_ATOMIC"
RACES = 5
NAMESPACE_PREFIX = "lakesink_doctor_"
_NAME = "swap"
_KEY = SinkKey("doctor")


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of one of two rival commits.

    Attributes:
        snapshot_id: Its snapshot.
        refused_as: Name of the error that it got; empty if the answer was yes.
    """

    snapshot_id: int
    refused_as: str


@dataclass(frozen=True, slots=True)
class SwapProof:
    """A catalog kept its promise.

    Attributes:
        refused_as: Name of the error by which it refused the second of two commits.
        races: Pairs of commits at the same time of which one landed.
    """

    refused_as: str
    races: int


@dataclass(slots=True)
class ScratchTable:
    """A table of our own, in a namespace of our own: made, asked, and dropped by exact name.

    Attributes:
        catalog: Where.
        namespace: A name that nobody else has.
        table: The table as it was made; None before that.
    """

    catalog: Catalog
    namespace: str = field(default_factory=lambda: NAMESPACE_PREFIX + uuid.uuid4().hex)
    table: Table | None = None

    @property
    def name(self) -> str:
        """Identifier of the table."""
        return f"{self.namespace}.{_NAME}"

    def create(self) -> Table:
        """Make namespace and table.

        Raises:
            CatalogError: One of them cannot be made.
        """
        self.table = create_table(self.catalog, self.name, pa.schema([("id", pa.int64())]))
        return self.table

    @property
    def folder(self) -> str | None:
        """The folder that is the namespace's alone, for the caller to delete; None if a service owns the files."""
        if self.table is None or not isinstance(self.catalog, MetastoreCatalog):
            return None
        before, found, after = self.table.location().rpartition(self.namespace)
        return before + found + after.partition("/")[0] if found else None

    def drop(self) -> list[str]:
        """Drop table and namespace; returns what could not be dropped, and why."""
        owned = isinstance(self.catalog, MetastoreCatalog)
        drop_table = self.catalog.drop_table if owned else self.catalog.purge_table
        left: list[str] = []
        if self.table is not None:
            self._try(f"table {self.name}", lambda: drop_table(self.name), left)
        self._try(f"namespace {self.namespace}", lambda: self.catalog.drop_namespace(self.namespace), left)
        return left

    def _try(self, what: str, call: Callable[[], Any], left: list[str]) -> None:
        try:
            call()
        except (NoSuchNamespaceError, NoSuchTableError):
            return
        except Exception as error:  # noqa: BLE001 - what stays behind is told, whatever kept it
            left.append(f"{what} ({describe(error, self.catalog.properties)})")


def prove_swap(scratch: ScratchTable, connect: Callable[[], Catalog], *, ledger_tag: bool) -> SwapProof:
    """Send pairs of commits that assert the same head, one after the other and then at once.

    Args:
        scratch: Just made.
        connect: Opens the catalog once more, as another driver would.
        ledger_tag: False to commit without lakesink's tag.

    Raises:
        CatalogError: `NOT_ATOMIC` if the promise is broken; else the catalog does not take such a commit.
    """
    assert scratch.table is not None
    fence = FencedCommit(
        load=lambda: load_table(scratch.catalog, scratch.name),
        key=_KEY,
        start_uuid=str(scratch.table.metadata.table_uuid),
        options=CommitOptions(ledger_tag=ledger_tag),
        surroundings=Surroundings(),
    )
    rivals = _Rivals(scratch, fence, (scratch.catalog, connect()))
    refused_as = rivals.in_turn(_batch(0))
    races = sum(rivals.at_once(_batch(number)) for number in range(1, RACES + 1))
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
        """The first lands with all its marks, the second is refused; returns as what."""
        first, second = self._requests(batch)
        catalog, known = self.scratch.catalog, self.scratch.catalog.properties
        translated(f"The catalog {catalog.name!r}", known, lambda: _send(catalog, first[0], first[1]))
        landed = Answered(first[2], "")
        self._check([landed])
        self._check_marks(landed.snapshot_id)
        answer = _answer(catalog, *second)
        self._check([landed, answer])
        return answer.refused_as

    def at_once(self, batch: Batch) -> bool:
        """True if one of the two landed; both may be refused, where a catalog is that cautious."""
        requests = self._requests(batch)
        with ThreadPoolExecutor(len(requests)) as pool:
            answers = list(pool.map(lambda pair: _answer(pair[0], *pair[1]), zip(self.catalogs, requests, strict=True)))
        return self._check(answers)

    def _requests(self, batch: Batch) -> list[tuple[Table, Request, int]]:
        look = self.fence.look(batch)
        assert isinstance(look.verdict, Commit)
        options, requests = self.fence.options, []
        for _ in self.catalogs:
            prepared = self.fence.prepare(look, (), schema=look.table.schema())
            change = Change(look.situation, look.verdict, batch, prepared, options)
            merger = ManifestMerger(options.merge, prepared.snapshot_id)
            request = build_request(look.table, change, merger, self.fence.surroundings.now_ms())
            requests.append((look.table, request, prepared.snapshot_id))
        return requests

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


def _batch(number: int) -> Batch:
    return stream_batch(number, "doctor", start=[number], end=[number + 1])


def _send(catalog: Catalog, table: Table, request: Request) -> None:
    catalog.commit_table(table, request.requirements, request.updates)


def _answer(catalog: Catalog, table: Table, request: Request, snapshot_id: int) -> Answered:
    try:
        _send(catalog, table, request)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not a yes; the table shows the rest
        return Answered(snapshot_id, type(error).__name__)
    return Answered(snapshot_id, "")


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
