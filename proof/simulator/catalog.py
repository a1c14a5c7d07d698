"""A catalog behind a network: a server that applies requests atomically, and clients whose calls may go astray."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests.exceptions import ChunkedEncodingError, ReadTimeout
from requests.exceptions import ConnectionError as Disconnected

from lakesink_catalog.connect.caching_sql import check_schema_ids
from proof.simulator.store import SimulatedIO, SimulatedStore
from proof.simulator.world import World

ANSWERS: dict[str, Callable[[], Exception]] = {
    "409": lambda: CommitFailedException("409: requirement failed: branch main has changed"),
    "500": lambda: CommitStateUnknownException("500"),
    "502": lambda: ServerError("502 bad gateway"),
    "503": lambda: ServiceUnavailableError("503"),
    "429": lambda: ServerError("429 too many requests"),
    "400": lambda: BadRequestError("400"),
    "time-out": lambda: ReadTimeout("read timed out"),
    "reset": lambda: Disconnected("reset by peer"),
    "cut body": lambda: ChunkedEncodingError("ended early"),
}
"""What something between client and server may say, whatever the server did."""

LATEST_ARRIVAL_MS = 60_000
WAREHOUSE = "mem://lake"
EVENTS = ("demo", "events")
TABLE_PROPERTIES = {"commit.retry.num-retries": "3", "commit.manifest.min-count-to-merge": "4"}
LOCATION = f"{WAREHOUSE}/{'/'.join(EVENTS)}"


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a table."""

    metadata: TableMetadata
    location: str


@dataclass(eq=False)
class SimulatedServer:
    """The catalog itself: one table's states, each replaced by the next in one step.

    Attributes:
        store: Where metadata files go.
        name: Of the table.
        versions: All states, oldest first; those of earlier tables of the name too.
        applied: Told of every new state.
    """

    store: SimulatedStore
    name: tuple[str, ...] = EVENTS
    versions: list[Version] = field(default_factory=list)
    applied: Callable[[Version], None] = field(default=lambda _: None)
    _dropped: bool = False

    @property
    def current(self) -> Version | None:
        """The table as it is; None if it is not there."""
        return self.versions[-1] if self.versions and not self._dropped else None

    def drop(self) -> None:
        """Take the table from the catalog; its files stay."""
        self._dropped = True

    def create(
        self,
        schema: Schema,
        properties: dict[str, str],
        location: str,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    ) -> Version:
        """Create the table, or replace it by another one of the same name."""
        metadata = new_table_metadata(
            location=location,
            schema=schema,
            partition_spec=spec,
            sort_order=UNSORTED_SORT_ORDER,
            properties={"format-version": "2", **properties},
        )
        return self._replace(metadata.model_copy(update={"last_updated_ms": self.store.world.now_ms}))

    def apply(self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]) -> Version:
        """Carry out one request, as lakesink's SQL catalog does: all of it, or nothing.

        Raises:
            CommitFailedException: A requirement does not hold.
            ValueError: An update makes no sense for the table.
        """
        base = self.current
        if base is None:
            raise NoSuchTableError("the table is not there")
        for requirement in requirements:
            requirement.validate(base.metadata)
        check_schema_ids(base.metadata, updates)
        updated = update_table_metadata(base.metadata, updates, metadata_location=base.location)
        if updated == base.metadata:
            return base
        if updated.current_snapshot_id == base.metadata.current_snapshot_id:
            updated = updated.model_copy(update={"last_updated_ms": self.store.world.now_ms})
        return self._replace(updated)

    def edit(self, **changes: Any) -> Version:
        """What an engine may do that PyIceberg's updates cannot: other metadata in the place of the present one."""
        base = self.current
        assert base is not None
        return self._replace(base.metadata.model_copy(update=changes, deep=True))

    def _replace(self, metadata: TableMetadata) -> Version:
        location = f"{metadata.location}/metadata/{len(self.versions):05d}-{metadata.table_uuid}.metadata.json"
        version = Version(metadata, location)
        self._dropped = False
        self.versions.append(version)
        self.store.set(location, cache(lambda: metadata.model_dump_json().encode()))
        self.applied(version)
        return version


def deliver_late(world: World, deliver: Callable[[], object]) -> None:
    """A request that arrives in its own time, overtaken or overtaking; nobody is told what came of it."""
    wait_ms = world.random.randrange(1, LATEST_ARRIVAL_MS)

    def arrive() -> None:
        world.sleep(wait_ms)
        try:
            deliver()
        except Exception as error:  # noqa: BLE001 - whatever the server says, nobody is there to hear it
            world.tell(f"a late request arrives and is refused: {type(error).__name__}")
        else:
            world.tell("a late request arrives and is carried out")

    world.start("network", arrive)


class SimulatedCatalog(NoopCatalog):
    """One client of the server: what a driver holds.

    Attributes:
        seen: The state that the last load showed.
        unknown: Snapshots of requests for the stream's table whose answer said nothing of what became of them.

    Args:
        server: The catalog itself.
        others: For other tables than the stream's.
    """

    def __init__(self, server: SimulatedServer, *others: SimulatedServer) -> None:
        Catalog.__init__(self, "simulated")
        self.server = server
        self._tables = {one.name: one for one in (server, *others)}
        self.io = SimulatedIO(server.store)
        self.seen: Version | None = None
        self.unknown: list[int] = []

    @property
    def world(self) -> World:
        """Clock, chance and scheduler."""
        return self.server.store.world

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,  # noqa: ARG002 - rows of the simulation have none
        sort_order: Any = UNSORTED_SORT_ORDER,  # noqa: ARG002 - nor an order
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """See `Catalog`."""
        server = self._server(identifier)
        if server is not self.server:
            self.world.pause()
        if server.current is not None:
            raise TableAlreadyExistsError(str(identifier))
        there = location or f"{WAREHOUSE}/{'/'.join(server.name)}"
        return self._table(server, server.create(schema, dict(properties), there))

    def drop_table(self, identifier: str | Identifier) -> None:
        """See `Catalog`."""
        server = self._server(identifier)
        if server.current is None:
            raise NoSuchTableError(str(identifier))
        server.drop()

    def namespace_exists(self, namespace: str | Identifier) -> bool:  # noqa: ARG002 - there is one
        """See `Catalog`."""
        return True

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table as it is, or was a moment ago."""
        self.world.pause()
        if self.world.strikes("load failed"):
            raise self._any_answer()
        server = self._server(identifier)
        if server.current is None:
            raise NoSuchTableError(str(identifier))
        back = 1
        if self.world.strikes("load stale"):
            back = min(len(server.versions), self.world.random.randrange(2, 5))
        found = server.versions[-back]
        if server is self.server:
            self.seen = found
        return self._table(server, found)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Send one request; what is said of it need not be true."""
        self.world.call()
        version = self._sent(self._server(table.name()), Request(requirements, updates))
        self.world.pause()
        return CommitTableResponse(metadata=version.metadata, metadata_location=version.location)

    def _sent(self, server: SimulatedServer, request: "Request") -> Version:
        strikes = self.world.strikes
        if strikes("request lost"):
            raise self._unknown(server, request)
        if strikes("request late"):
            deliver_late(self.world, lambda: server.apply(*request))
            raise self._unknown(server, request)
        if strikes("request delivered twice"):
            deliver_late(self.world, lambda: server.apply(*request))
        if strikes("yes, and nothing done"):
            return self._lie(server, request)
        version = server.apply(*request)
        if strikes("sent twice by the transport"):
            version = server.apply(*request)
        if strikes("answer lost"):
            raise self._unknown(server, request)
        return version

    def _lie(self, server: SimulatedServer, request: "Request") -> Version:
        base = server.current
        assert base is not None
        for requirement in request.requirements:
            requirement.validate(base.metadata)
        if self.world.random.random() < 0.5:
            return base
        would_be = update_table_metadata(base.metadata, request.updates, metadata_location=base.location)
        return Version(would_be, "nowhere")

    def _server(self, identifier: str | Identifier) -> SimulatedServer:
        name = Catalog.identifier_to_tuple(identifier)
        if name not in self._tables:
            raise NoSuchTableError(str(identifier))
        return self._tables[name]

    def _table(self, server: SimulatedServer, version: Version) -> Table:
        return Table(server.name, version.metadata, version.location, self.io, self)

    def _unknown(self, server: SimulatedServer, request: "Request") -> Exception:
        if server is self.server:
            self.unknown += [update.snapshot.snapshot_id for update in request.updates if hasattr(update, "snapshot")]
        return self._any_answer()

    def _any_answer(self) -> Exception:
        name = self.world.random.choice(list(ANSWERS))
        self.world.tell(f"the catalog answers {name}")
        return ANSWERS[name]()


class Request(NamedTuple):
    """What one call of `commit_table` asks for."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
