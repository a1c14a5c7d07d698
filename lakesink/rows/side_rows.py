"""Rows of a sink that go to a table of their own beside the sink's table, such as dead letters. Pure."""

from dataclasses import dataclass

from lakesink.rows.plan import WritePlan
from lakesink_protocol.identity import SinkKey, SinkKind, digest

DIGEST_BYTES = 16
APPLICATION = 12
_LONGEST_SINK = 40


@dataclass(frozen=True, slots=True)
class SidePlan:
    """Where a task writes such rows.

    Attributes:
        participant: Participant that gets these rows.
        sink: Sink of the table that gets the other rows.
        table_uuid: UUID of that table: several tables can share one side table.
        application: Digest of the application that writes, see `application_of`.
        logs: True if all changes go there; false if it gets dead letters.
    """

    participant: str
    sink: SinkKey
    table_uuid: str
    application: str
    plan: WritePlan
    logs: bool = False


def side_key(owner: SinkKey, kind: str, query_id: str, table_uuid: str) -> SinkKey:
    """The application that writes the rows of this kind of a sink, a query and a table.

    A new checkpoint counts from 0 again, and two tables may have an application of one name.
    """
    of = digest({"sink": owner.name, "branch": owner.branch, "query": query_id, "table": table_uuid})[:APPLICATION]
    return SinkKey(f"{owner.name[:_LONGEST_SINK]}.{kind}.{of}", kind=SinkKind.TXN)


def application_of(key: SinkKey) -> str:
    """The digest in the name of such an application: with it begin the ids of its dead letters."""
    return key.name.rpartition(".")[2]


def side_end(query_id: str, after: int) -> str:
    """What the ledger of a side table keeps as the end of a batch: a digest cannot tell the query.

    `after` is the last sequence number of the sink's own table before it gets the batch.
    """
    return f"{after}.{query_id}"


def parse_side_end(end: str) -> tuple[str, int] | None:
    """The query and the sequence number; None if the batch is not of a side table."""
    after, dot, query_id = end.partition(".")
    return (query_id, int(after)) if dot and after.isdecimal() else None


def digest_sum(*digests: int) -> int:
    """The digest of rows together: it does not depend on their order, or on their tasks."""
    return sum(digests) % (1 << (8 * DIGEST_BYTES))
