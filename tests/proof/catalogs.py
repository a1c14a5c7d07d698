"""Catalogs that must behave alike: the real ones, the stand-in of other tests, and the simulator's."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.connect.catalog import connect
from proof.simulator.catalog import SimulatedCatalog, SimulatedServer
from proof.simulator.store import SimulatedStore
from proof.simulator.world import World
from servers.rest_reference import rest_reference
from testkit.http_servers import postgres, skipped_where_missing
from testkit.rest_catalog import rest_catalog

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table of one case may be made.

    Attributes:
        catalog: The catalog.
        name: Identifier of a table that is not there.
    """

    catalog: Catalog
    name: tuple[str, str]


Places = Callable[[], Place]


def _in(catalog: Catalog) -> Place:
    namespace = f"n{uuid.uuid4().hex}"
    catalog.create_namespace(namespace)
    return Place(catalog, (namespace, "events"))


@contextmanager
def sqlite(folder: Path) -> Iterator[Places]:
    catalog = connect("lake", {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/w"})
    yield lambda: _in(catalog)


@contextmanager
def postgresql(folder: Path) -> Iterator[Places]:
    with postgres("conformance") as server:
        uri = f"postgresql://lake:conformance@{server.address}"
        catalog = connect("lake", {"uri": uri, "warehouse": f"file://{folder}/w"})
        yield lambda: _in(catalog)


@contextmanager
def in_memory(folder: Path) -> Iterator[Places]:
    catalog = connect(folder.name, {"type": "in-memory", "warehouse": f"file://{folder}/w"})
    yield lambda: _in(catalog)


@contextmanager
def rest_stand_in(folder: Path) -> Iterator[Places]:
    backing = connect("backing", {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/w"})
    with rest_catalog(backing) as (uri, _):
        catalog = connect("lake", {"type": "rest", "uri": uri})
        yield lambda: _in(catalog)


@contextmanager
def rest(folder: Path) -> Iterator[Places]:
    with skipped_where_missing(), rest_reference(folder) as server:
        catalog = connect("lake", {"type": "rest", "uri": server.uri})
        yield lambda: _in(catalog)


@contextmanager
def simulated(_: Path) -> Iterator[Places]:
    """A world in which nothing goes wrong; it has room for one table."""
    yield lambda: Place(SimulatedCatalog(SimulatedServer(SimulatedStore(World(seed=1)))), ("demo", "events"))


CATALOGS = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "in-memory": in_memory,
    "rest-reference": rest,
    "rest-stand-in": rest_stand_in,
    "simulated": simulated,
}
NEED_SERVERS = ("rest-reference",)
"""These need more than a machine for the short tests has."""
