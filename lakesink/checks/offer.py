"""One commit as lakesink sends it, built but not sent: to test how a catalog treats rival commits.

It is the product's own request: snapshot, branch, ledger entry and tag in one, asserting table, head, schema and tag.
It contains no file.
"""

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError
from pyiceberg.table import CommitTableResponse, Table
from requests.exceptions import RequestException
from sqlalchemy.exc import SQLAlchemyError

from lakesink_catalog.commit.fence import FencedCommit, Look, Surroundings
from lakesink_catalog.commit.request import CommitOptions, PlannedCommit, Request, build_request
from lakesink_catalog.manifests.merging import ManifestMerger
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.identity import Batch, SinkKey, stream_batch
from lakesink_protocol.redact import describe
from lakesink_protocol.verdict import Commit

NO_ANSWER = (
    CommitStateUnknownException,
    OSError,
    RequestException,
    SQLAlchemyError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
"""Errors for a missing answer or a failure of the catalog. They are no refusals: the commit may have landed."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A request, and the table that it was built on."""

    table: Table
    request: Request
    snapshot_id: int

    def send(self, catalog: Catalog) -> CommitTableResponse:
        """Send the request and let errors pass."""
        return catalog.commit_table(self.table, self.request.requirements, self.request.updates)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a commit."""

    snapshot_id: int
    refused_as: str  # name of the error; empty if the commit was acknowledged
    unknown: bool = False  # True if that error is no refusal, see `NO_ANSWER`
    detail: str = ""  # the error in words, without secrets


def fence_on(catalog: Catalog, name: str, key: SinkKey, *, ledger_tag: bool = True) -> FencedCommit:
    """The product's fenced commit to a table, with the connection of one driver."""
    return FencedCommit(
        load=lambda: load_table(catalog, name),
        key=key,
        start_uuid=str(load_table(catalog, name).metadata.table_uuid),
        options=CommitOptions(ledger_tag=ledger_tag),
        surroundings=Surroundings(),
    )


def numbered_batch(number: int, query_id: str) -> Batch:
    """Batch n reads offsets n to n+1."""
    return stream_batch(number, query_id, start=[number], end=[number + 1])


def offer(fence: FencedCommit, look: Look, batch: Batch) -> Offer:
    """Build the commit of a batch without files, as the product does; the decision `look` must allow it."""
    assert isinstance(look.verdict, Commit)
    prepared = fence.prepare(look, (), schema=look.table.schema())
    change = PlannedCommit(look.situation, look.verdict, batch, prepared, fence.options)
    merger = ManifestMerger(fence.options.merge, prepared.snapshot_id)
    request = build_request(look.table, change, merger, fence.surroundings.now_ms())
    return Offer(look.table, request, prepared.snapshot_id)


def answer(catalog: Catalog, offered: Offer) -> Answered:
    """Send a commit. Each error counts as an answer: only the table shows whether the commit landed."""
    try:
        offered.send(catalog)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not a yes
        return refused(offered.snapshot_id, error, catalog)
    return Answered(offered.snapshot_id, "")


def refused(snapshot_id: int, error: Exception, catalog: Catalog) -> Answered:
    """An error as an answer."""
    detail = describe(error, catalog.properties)
    return Answered(snapshot_id, type(error).__name__, isinstance(error, NO_ANSWER), detail)
