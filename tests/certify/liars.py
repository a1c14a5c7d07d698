"""Catalogs that break one promise each, beside those of `tests.doctor.liars`."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, Field
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest, CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    TableRequirement,
)

from testkit.http_servers import Answer, Request, http_server
from testkit.rest_catalog import RestService
from tests.doctor.liars import LastOneWins, Requirements, Updates


class Forgetful(SqlCatalog):
    """Does not look at some assertions."""

    def forgets(self, requirement: TableRequirement) -> bool:
        raise NotImplementedError

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        kept = tuple(requirement for requirement in requirements if not self.forgets(requirement))
        return super().commit_table(table, kept, updates)


class IgnoresHead(Forgetful):
    def forgets(self, requirement: TableRequirement) -> bool:
        return isinstance(requirement, AssertRefSnapshotId) and requirement.ref == "main"


class TakesNoHeadForAnyHead(IgnoresHead):
    def forgets(self, requirement: TableRequirement) -> bool:
        return super().forgets(requirement) and getattr(requirement, "snapshot_id", None) is None


class IgnoresTag(Forgetful):
    def forgets(self, requirement: TableRequirement) -> bool:
        return isinstance(requirement, AssertRefSnapshotId) and requirement.ref != "main"


class TakesNoTagForAnyTag(IgnoresTag):
    def forgets(self, requirement: TableRequirement) -> bool:
        return super().forgets(requirement) and getattr(requirement, "snapshot_id", None) is None


class IgnoresUuid(Forgetful):
    def forgets(self, requirement: TableRequirement) -> bool:
        return isinstance(requirement, AssertTableUUID)


class IgnoresSchema(Forgetful):
    def forgets(self, requirement: TableRequirement) -> bool:
        return isinstance(requirement, AssertCurrentSchemaId)


class TakesEqualIds(SqlCatalog):
    """Keeps the snapshot that it has, and says yes."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        kept = tuple(update for update in updates if _known(table, update) is None)
        return super().commit_table(table, requirements, kept)


class LandsTwice(LastOneWins):
    """Puts what is sent again beside what is there."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        current = self.load_table(table.name())
        again = [snapshot for snapshot in (_known(current, update) for update in updates) if snapshot]
        if not again:
            return SqlCatalog.commit_table(self, table, requirements, updates)
        base = current.metadata
        current.metadata = base.model_copy(update={"snapshots": [*base.snapshots, *again]})
        return self.overwrite(current, (SetPropertiesUpdate(updates={"again": "yes"}),))


class PropertiesFirst(SqlCatalog):
    """Two steps: the properties, and then the rest."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        properties = tuple(update for update in updates if isinstance(update, SetPropertiesUpdate))
        super().commit_table(table, (), properties)
        return super().commit_table(
            table, requirements, tuple(update for update in updates if update not in properties)
        )


class ShowsTheLastLook(SqlCatalog):
    """Every connection but those of the test and of the first writer shows what it saw the time before."""

    opened: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self.honest = next(self.opened) < 2
        self.seen: dict[Any, Table] = {}

    def load_table(self, identifier: Any) -> Table:
        table = super().load_table(identifier)
        shown = self.seen.get(identifier, table)
        self.seen[identifier] = table
        return table if self.honest else shown


class SlowToWrite(LastOneWins):
    """Checks what is asserted, and lets others in between that and its write."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        current = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(current.metadata)
        time.sleep(0.05)
        return self.overwrite(current, updates)


class ForgetsSnapshots(SqlCatalog):
    """Forgets what is below the newest snapshot."""

    def _update_and_stage_table(self, current: Table | None, *request: Any) -> StagedTable:
        staged = super()._update_and_stage_table(current, *request)
        whole = staged.metadata
        head = whole.current_snapshot()
        newest = [head.model_copy(update={"parent_snapshot_id": None})] if head else []
        kept = {"snapshots": newest, "snapshot_log": whole.snapshot_log[-1:], "metadata_log": []}
        staged.metadata = whole.model_copy(update=kept)
        return staged


class LosesOneInSeven(SqlCatalog):
    """Says yes to every seventh commit, and does nothing."""

    sent: ClassVar[Iterator[int]] = itertools.count(1)

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        if next(self.sent) % 7:
            return super().commit_table(table, requirements, updates)
        return CommitTableResponse(metadata=table.metadata, metadata_location=table.metadata_location)


class Silent(SqlCatalog):
    """Never answers a commit."""

    def commit_table(self, *_: Any) -> CommitTableResponse:
        raise TimeoutError("no answer")


class KeepsOneSnapshot(SqlCatalog):
    """Keeps the head of main only, without its parent, tags, other branches and logs, as Nessie 0.99.0 does."""

    def _update_and_stage_table(self, *change: Any) -> StagedTable:
        staged = super()._update_and_stage_table(*change)
        staged.metadata = _head_only(staged.metadata)
        return staged


def _head_only(metadata: TableMetadata) -> TableMetadata:
    head = metadata.current_snapshot()
    if head is None:
        return metadata
    kept = {
        "snapshots": [head.model_copy(update={"parent_snapshot_id": None})],
        "refs": {MAIN_BRANCH: metadata.refs[MAIN_BRANCH]},
        "snapshot_log": metadata.snapshot_log[-1:],
        "metadata_log": [],
        "properties": metadata.properties | {"gc.enabled": "false"},
    }
    return metadata.model_copy(update=kept)


def _known(table: Table, update: Any) -> Snapshot | None:
    """The snapshot that is to be added, if the table has one of its id."""
    ids = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    return update.snapshot if isinstance(update, AddSnapshotUpdate) and update.snapshot.snapshot_id in ids else None


class CommitTables(BaseModel):
    """The request's body."""

    changes: list[CommitTableRequest] = Field(alias="table-changes")


_TABLES = "/v1/{prefix}/namespaces/{namespace}/tables"
ENDPOINTS = [
    *(f"{method} /v1/{{prefix}}/namespaces" for method in ("GET", "POST")),
    *(f"{method} /v1/{{prefix}}/namespaces/{{namespace}}" for method in ("GET", "DELETE")),
    *(f"{method} {_TABLES}" for method in ("GET", "POST")),
    *(f"{method} {_TABLES}/{{table}}" for method in ("GET", "POST", "DELETE")),
    "POST /v1/{prefix}/transactions/commit",
]


class MultiTableService(RestService):
    """A REST catalog that commits several tables in one request, one request at a time: atomically."""

    def __init__(self, backing: Catalog) -> None:
        super().__init__(backing)
        self.lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        if request.path == "/v1/config":
            return 200, {"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS}
        return super().answer(request)

    def _route(self, request: Request) -> Answer:
        with self.lock:
            if request.path != "/v1/transactions/commit":
                return super()._route(request)
            return self.commit_all(CommitTables.model_validate_json(request.body).changes)

    def commit_all(self, changes: list[CommitTableRequest]) -> Answer:
        for change in changes:
            for requirement in change.requirements:
                requirement.validate(self.loaded(change).metadata)
        for change in changes:
            self.commit_one(change)
        return 204, b""

    def commit_one(self, change: CommitTableRequest) -> None:
        self.backing.commit_table(self.loaded(change), change.requirements, change.updates)

    def loaded(self, change: CommitTableRequest) -> Table:
        return self.backing.load_table((*change.identifier.namespace.root, change.identifier.name))


class OneAfterTheOther(MultiTableService):
    """Commits the first table before it looks at the second."""

    def commit_all(self, changes: list[CommitTableRequest]) -> Answer:
        for change in changes:
            self.commit_one(change)
        return 204, b""


class LosesUnderARace(MultiTableService):
    """Looks at all tables, and then drops what others overtook, with a yes."""

    def _route(self, request: Request) -> Answer:
        if request.path != "/v1/transactions/commit":
            return super()._route(request)
        changes = CommitTables.model_validate_json(request.body).changes
        for change in changes:
            for requirement in change.requirements:
                requirement.validate(self.loaded(change).metadata)
        time.sleep(0.05)
        with self.lock:
            for change in changes:
                try:
                    self.commit_one(change)
                except CommitFailedException:
                    return 204, b""
        return 204, b""


class NessieLike(RestService):
    """Says what it is, as Nessie 0.99.0 does."""

    def answer(self, request: Request) -> Answer:
        if request.path == "/v1/config":
            return 200, {"defaults": {}, "overrides": {"nessie.is-nessie-catalog": "true"}}
        return super().answer(request)


@contextmanager
def served(service: RestService) -> Iterator[str]:
    """Yields the URI."""
    with http_server(service.answer) as uri:
        yield uri
