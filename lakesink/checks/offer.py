"""One commit as lakesink sends it, built and not yet sent: for asking a catalog what it does with rivals.

The request is the product's own: snapshot, branch, ledger entry and tag in one, asserting table, head, schema and tag.
It holds no file.
"""

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError
from pyiceberg.table import CommitTableResponse, Table
from requests.exceptions import RequestException
from sqlalchemy.exc import SQLAlchemyError

from lakesink_catalog.commit.fence import FencedCommit, Look, Surroundings
from lakesink_catalog.commit.request import Change, CommitOptions, Request, build_request
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
"""What a catalog's silence or failure shows as. It is no refusal: the commit may have landed."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A request and the table that it was built on.

    Attributes:
        table: As it was loaded.
        request: What to send.
        snapshot_id: The snapshot in it.
    """

    table: Table
    request: Request
    snapshot_id: int

    def send(self, catalog: Catalog) -> CommitTableResponse:
        """Send it, whatever comes of it."""
        return catalog.commit_table(self.table, self.request.requirements, self.request.updates)


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a commit.

    Attributes:
        snapshot_id: Its snapshot.
        refused_as: Name of the error that it got; empty if the answer was yes.
        unknown: True if that error is no refusal, see `NO_ANSWER`.
        detail: The error in words, without a secret.
    """

    snapshot_id: int
    refused_as: str
    unknown: bool = False
    detail: str = ""


def fence_on(catalog: Catalog, name: str, key: SinkKey, *, ledger_tag: bool = True) -> FencedCommit:
    """The product's commit to a table, as one driver would do it.

    Args:
        catalog: The driver's own.
        name: Identifier of the table.
        key: The sink.
        ledger_tag: False to commit without lakesink's tag.

    Raises:
        CatalogError: The table cannot be loaded.
    """
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
    """Build the commit of a batch without files, as the product builds it.

    Args:
        fence: Whose commit.
        look: The look at the table that allows the batch.
        batch: The batch.
    """
    assert isinstance(look.verdict, Commit)
    prepared = fence.prepare(look, (), schema=look.table.schema())
    change = Change(look.situation, look.verdict, batch, prepared, fence.options)
    merger = ManifestMerger(fence.options.merge, prepared.snapshot_id)
    request = build_request(look.table, change, merger, fence.surroundings.now_ms())
    return Offer(look.table, request, prepared.snapshot_id)


def answer(catalog: Catalog, offered: Offer) -> Answered:
    """Send, and take whatever is raised as the answer; only the table shows what came of it."""
    try:
        offered.send(catalog)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not a yes
        return refused(offered.snapshot_id, error, catalog)
    return Answered(offered.snapshot_id, "")


def refused(snapshot_id: int, error: Exception, catalog: Catalog) -> Answered:
    """The answer that an error is."""
    detail = describe(error, catalog.properties)
    return Answered(snapshot_id, type(error).__name__, isinstance(error, NO_ANSWER), detail)
