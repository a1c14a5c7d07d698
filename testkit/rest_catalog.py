"""A REST catalog on the loopback: Iceberg's protocol over a SQL catalog, with faults before or after a commit lands."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, StagedTable, Table
from pyiceberg.table.update import AssertCreate

from lakesink_catalog.connect.first_snapshot import PROBE
from testkit.http_servers import Answer, Request, error_answer, http_server

Fault = Callable[[], Answer]

_STATUS = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
    CommitFailedException: 409,
    ValueError: 400,
}


class RestService:
    """Serves `backing`.

    Attributes:
        before: Taken from the front, one for each commit: the answer instead of a commit; None commits.
        after: Taken from the front, one for each commit that landed: a false answer; None for the true answer.
        commits: Number of commits that landed. Those to the scratch tables of a probe take no fault and do not count.
    """

    def __init__(self, backing: Catalog) -> None:
        self.backing = backing
        self.before: list[Fault | None] = []
        self.after: list[Fault | None] = []
        self.commits = 0

    def answer(self, request: Request) -> Answer:
        try:
            return self._route(request)
        except tuple(_STATUS) as error:
            status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
            return error_answer(status, type(error).__name__, str(error))

    def _route(self, request: Request) -> Answer:
        match [unquote(part) for part in request.path.split("/")[2:]]:
            case ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case ["namespaces"]:
                return self._namespaces(request)
            case ["namespaces", namespace]:
                return self._namespace(_split(namespace), request)
            case ["namespaces", namespace, "tables"]:
                return self._tables(_split(namespace), request)
            case ["namespaces", namespace, "tables", name]:
                return self._table((*_split(namespace), name), request)
        return error_answer(404, "NoSuchEndpoint", request.path)

    def _namespaces(self, request: Request) -> Answer:
        if request.method != "POST":
            return 200, {"namespaces": [list(found) for found in self.backing.list_namespaces()]}
        namespace = json.loads(request.body)["namespace"]
        self.backing.create_namespace(tuple(namespace))
        return 200, {"namespace": namespace, "properties": {}}

    def _tables(self, namespace: tuple[str, ...], request: Request) -> Answer:
        if request.method == "POST":
            return self._create(namespace, json.loads(request.body))
        names = self.backing.list_tables(namespace)
        return 200, {"identifiers": [{"namespace": list(name[:-1]), "name": name[-1]} for name in names]}

    def _table(self, identifier: tuple[str, ...], request: Request) -> Answer:
        if request.method == "POST":
            return self._commit(identifier, request.body)
        if request.method == "DELETE":
            return self._drop(self.backing.load_table(identifier))
        return 200, _loaded(self.backing.load_table(identifier))

    def _drop(self, table: Table) -> Answer:
        """Like a service that purges."""
        self.backing.drop_table(table.name())
        folder = Path(table.location().removeprefix("file://"))
        shutil.rmtree(folder)
        with suppress(OSError):  # that of the namespace, if it is empty
            folder.parent.rmdir()
        return 204, b""

    def _namespace(self, namespace: tuple[str, ...], request: Request) -> Answer:
        if request.method == "DELETE":
            self.backing.drop_namespace(namespace)
            return 204, b""
        if not self.backing.namespace_exists(namespace):
            raise NoSuchNamespaceError(".".join(namespace))
        return 200, {"namespace": list(namespace), "properties": {}}

    def _create(self, namespace: tuple[str, ...], body: dict[str, Any]) -> Answer:
        wanted = CreateTableRequest.model_validate({"location": None, **body})
        asked: dict[str, Any] = {
            "identifier": (*namespace, wanted.name),
            "schema": wanted.table_schema,
            "partition_spec": wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            "properties": wanted.properties,
        }
        if not wanted.stage_create:
            return 200, _loaded(self.backing.create_table(**asked))
        metadata = self.backing.create_table_transaction(**asked).table_metadata
        return 200, {"metadata": json.loads(metadata.model_dump_json()), "config": {}}

    def _commit(self, identifier: tuple[str, ...], body: bytes) -> Answer:
        wanted = CommitTableRequest.model_validate_json(body)
        if identifier[-1].startswith(PROBE):
            return self._committed(identifier, wanted)
        before = self.before.pop(0) if self.before else None
        if before is not None:
            return before()
        answer = self._committed(identifier, wanted)
        self.commits += 1
        after = self.after.pop(0) if self.after else None
        return after() if after is not None else answer

    def _committed(self, identifier: tuple[str, ...], wanted: CommitTableRequest) -> Answer:
        response = self.backing.commit_table(self._target(identifier, wanted), wanted.requirements, wanted.updates)
        return 200, response.model_dump_json().encode()

    def _target(self, identifier: tuple[str, ...], wanted: CommitTableRequest) -> Table:
        """The table; of a request that creates one only its name."""
        if AssertCreate() in wanted.requirements and not self.backing.table_exists(identifier):
            nothing: Any = None
            return StagedTable(identifier, nothing, "", nothing, self.backing)
        return self.backing.load_table(identifier)


@contextmanager
def rest_catalog(backing: Catalog) -> Iterator[tuple[str, RestService]]:
    """Serve a catalog; yields the URI and the service, which takes the faults."""
    service = RestService(backing)
    with http_server(service.answer) as uri:
        yield uri, service


def _split(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split("\x1f"))


def _loaded(table: Table) -> Any:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}
