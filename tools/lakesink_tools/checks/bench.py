"""A scratch table, and two drivers that send it lakesink's own commits: how does the catalog answer?

A commit is the product's own request: snapshot, branch, ledger entry and tag in one, asserting table, head, schema and
tag. It contains no file.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
)
from pyiceberg.table import CommitTableRequest, Table, TableIdentifier
from pyiceberg.table.update import SetPropertiesUpdate, TableRequirement, TableUpdate

from lakesink.parquet.filesystem import open_filesystem, shareable_properties
from lakesink_catalog.commit.batch_change import CommitOptions, batch_change
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.request import build_request, snapshot_time_ms
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_catalog.connect.catalog_failures import catalog_error
from lakesink_catalog.connect.kinds import sqlite_file
from lakesink_catalog.connect.rest import BoundedRestCatalog
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.identity import SinkKey, stream_batch
from lakesink_protocol.redact import describe, safe_cause
from lakesink_protocol.verdict import Commit
from lakesink_tools.checks.caught import caught
from lakesink_tools.checks.certify.state import Sent, State, not_landed, not_refused

KEY = SinkKey("certify")
_QUERY = str(uuid.UUID(int=0))
_REFUSALS = (CommitFailedException, BadRequestError, NoSuchTableError, ValueError)


@dataclass(frozen=True, slots=True)
class Offer:
    """A request, and the table that it was built on."""

    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    snapshot_id: int
    batch_id: int

    def only_properties(self) -> "Offer":
        """Without the snapshot, whose sequence number can be a reason to refuse it: then only what is asserted is."""
        return replace(self, updates=tuple(one for one in self.updates if isinstance(one, SetPropertiesUpdate)))


@dataclass(slots=True)
class ScratchTable:
    """A scratch table in a namespace of its own, removed by its exact name."""

    catalog: Catalog
    prefix: str  # first part of the namespace's name; it names the creator
    namespace: str = field(init=False)  # unique
    table: Table | None = None  # None before `create`

    def __post_init__(self) -> None:
        self.namespace = self.prefix + uuid.uuid4().hex

    @property
    def name(self) -> str:
        """Identifier of the table."""
        return f"{self.namespace}.scratch"

    def create(self) -> Table:
        """Create namespace and table."""
        self.table = create_table(self.catalog, self.name, pa.schema([("id", pa.int64())]))
        return self.table

    def remove(self) -> list[str]:
        """Remove table, namespace and folder; returns what is left, and why. May be called again."""
        owned = isinstance(self.catalog, MetastoreCatalog)  # else a service owns the files
        drop_table = self.catalog.drop_table if owned else self.catalog.purge_table
        left: list[str] = []
        self._try(f"table {self.name}", lambda: drop_table(self.name), left)  # also one that could not be loaded
        self._try(f"namespace {self.namespace}", lambda: self.catalog.drop_namespace(self.namespace), left)
        if self.table is not None and owned:
            before, found, after = self.table.location().rpartition(self.namespace)
            folder = before + found + after.partition("/")[0]  # the folder of this namespace only
            if found:
                self._try(f"folder {folder}", lambda: self._delete(folder), left)
        return left

    def _delete(self, folder: str) -> None:
        assert self.table is not None
        properties = shareable_properties(self.table.io.properties)
        filesystem, path_of = open_filesystem(folder, properties, self.catalog.name)
        with suppress(FileNotFoundError):
            filesystem.delete_dir(path_of(folder))

    def _try(self, what: str, call: Callable[[], Any], left: list[str]) -> None:
        failure = caught(call)
        if isinstance(failure, Exception) and not isinstance(failure, (NoSuchNamespaceError, NoSuchTableError)):
            left.append(f"{what} ({describe(failure, self.catalog.properties)})")


@dataclass(frozen=True, slots=True)
class Bench:
    """A scratch table, and two drivers with a connection each."""

    scratch: ScratchTable
    mine: Catalog
    other: Catalog
    ledger_tag: bool
    connect: Callable[[], Catalog]
    heard: list[str] = field(default_factory=list)  # names of the errors that refused a commit

    def state(self, catalog: Catalog | None = None) -> State:
        """What the table shows, through the first connection by default."""
        table = load_table(catalog or self.mine, self.scratch.name)
        view = view_table(table, KEY)
        return State(
            uuid=view.table_uuid,
            head=view.head,
            tag=view.tag_snapshot_id,
            entry=view.entry.snapshot_id if view.entry else None,
            snapshots=tuple((found.snapshot_id, found.parent_snapshot_id) for found in table.metadata.snapshots),
            batches=view.entry.batch_id + 1 if view.entry else 0,
        )

    def offers(self, count: int = 2, snapshot_id: int | None = None) -> list[Offer]:
        """Build rival commits of the next batch on the current table; with fresh snapshot ids, unless one is given."""
        fence = fence_on(self.mine, self.scratch.name, ledger_tag=self.ledger_tag)
        if snapshot_id is not None:
            fence = replace(fence, effects=Effects(new_snapshot_id=lambda: snapshot_id))
        return next_offers(fence, count)

    def accepts(self, offered: Offer) -> str:
        """Send a commit that must land; returns what went wrong, or an empty string."""
        before = self.state()
        sent = self.ask(offered)
        if sent.refused_as:
            return f"It refused a valid commit: {sent.detail}."
        return not_landed(before, self.state(), offered.snapshot_id, ledger_tag=self.ledger_tag)

    def refuses(self, offered: Offer, what: str) -> str:
        """Send a commit that must not land, through the other connection; returns what went wrong, or an empty string.

        `what` is the commit in words.
        """
        before = self.state()
        sent = self.ask(offered, self.other)
        self.heard.append(sent.refused_as)
        return not_refused(before, self.state(), sent.refused_as, what)

    def ask(self, offered: Offer, catalog: Catalog | None = None) -> Sent:
        """Send a commit and return the answer; raises a `CatalogError` if there was none."""
        return answer(catalog or self.mine, offered, needed=True)


@contextmanager
def there_or_like(found: FoundCatalog) -> Iterator[FoundCatalog]:
    """The catalog; for one in a file that its first stream creates, one like it in a folder beside, for the time."""
    file = Path(sqlite_file(found.properties) or "/")
    places = file.parents if found.home else (file.parent,)  # a stream makes the folders of the embedded catalog only
    beside = next((place for place in places if place.exists()), None)
    if file.exists() or beside is None:
        yield found
        return
    with TemporaryDirectory(prefix=".lakesink-", dir=beside) as folder:
        own = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        made = CatalogConfig("lakesink-scratch", own).find()
        made.open()
        yield made


@contextmanager
def bench_in(
    found: FoundCatalog, catalog: Catalog, left: list[str], *, prefix: str, ledger_tag: bool
) -> Iterator[Bench]:
    """Create a scratch table with two connections, and remove it afterwards.

    `catalog` is the first connection, `found` opens the second one. `left` receives what could not be removed, and why.
    """
    scratch = ScratchTable(catalog, prefix)
    try:
        scratch.create()
        connect = partial(found.open, create=False)
        yield Bench(scratch, catalog, connect(), ledger_tag, connect)
    finally:
        left.extend(scratch.remove())


def fence_on(catalog: Catalog, name: str, *, ledger_tag: bool) -> FencedCommit:
    """The product's fenced commit to a table, with the connection of one driver."""
    return FencedCommit(
        load=lambda: load_table(catalog, name),
        key=KEY,
        start_uuid=str(load_table(catalog, name).metadata.table_uuid),
        options=CommitOptions(ledger_tag=ledger_tag),
        effects=Effects(),
    )


def next_offers(fence: FencedCommit, count: int = 1) -> list[Offer]:
    """Build commits of the batch after the ledger's, without files, as the product does; batch n reads offset n."""
    table = fence.load()
    entry = view_table(table, KEY).entry
    number = entry.batch_id + 1 if entry else 0
    batch = stream_batch(number, _QUERY, start=[number], end=[number + 1])
    look = fence.decide_on(table, batch)
    assert isinstance(look.verdict, Commit)
    offers = []
    for _ in range(count):
        prepared = fence.prepare(look, (), schema=table.schema())
        time_ms = snapshot_time_ms(table, fence.effects.now_ms())
        request = build_request(table, batch_change(look, prepared, fence.options, time_ms), time_ms)
        offers.append(Offer(table, request.requirements, request.updates, prepared.snapshot_id, number))
    return offers


def send(catalog: Catalog, *offers: Offer) -> None:
    """Send the commits of one table, or of several, in one request, and let errors pass."""
    if len(offers) == 1:
        [offered] = offers
        catalog.commit_table(offered.table, offered.requirements, offered.updates)
    else:
        assert isinstance(catalog, BoundedRestCatalog)
        requests = []
        for offered in offers:
            *namespace, name = offered.table.name()
            identifier = TableIdentifier(namespace=namespace, name=name)
            requests.append(
                CommitTableRequest(identifier=identifier, requirements=offered.requirements, updates=offered.updates)
            )
        catalog.commit_tables(requests)


def is_refusal(error: Exception) -> bool:
    """True if a catalog refuses a commit in this way. After any other error, the commit may have landed.

    PyIceberg raises a plain `RESTError` for the statuses of a client's mistake, and ValueErrors also for answers that
    it cannot read.
    """
    unread = isinstance(error, (OSError, ValidationError))
    return type(error) is RESTError or (isinstance(error, _REFUSALS) and not unread)


def answer(catalog: Catalog, *offers: Offer, needed: bool = False) -> Sent:
    """Send commits in one request. Each error counts as an answer: only the tables show whether the commits landed.

    If an answer is `needed`, its absence raises a `CatalogError`.
    """
    sent = Sent(tuple(offered.snapshot_id for offered in offers))
    known = catalog.properties
    failure = caught(lambda: send(catalog, *offers))
    if failure is None:
        return sent
    unknown = not is_refusal(failure)
    if needed and unknown:
        raise catalog_error(failure, f"The catalog {catalog.name!r}", known) from safe_cause(failure, known)
    return replace(sent, refused_as=type(failure).__name__, unknown=unknown, detail=describe(failure, known))
