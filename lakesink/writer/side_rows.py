"""Rows of a sink that go to a table of their own beside the sink's table, such as dead letters. Pure."""

from dataclasses import dataclass

from lakesink.writer.plan import WritePlan
from lakesink_protocol.identity import SinkKey, SinkKind, digest

DIGEST_BYTES = 16
_LONGEST_SINK = 40


@dataclass(frozen=True, slots=True)
class SidePlan:
    """Where a task writes such rows.

    Attributes:
        owner: Participant that gets the other rows.
        participant: Participant that gets these rows.
        sink: Sink of the owner.
        table_uuid: UUID of the owner's table: several tables can share one side table.
    """

    owner: str
    participant: str
    sink: SinkKey
    table_uuid: str
    plan: WritePlan


def side_key(owner: SinkKey, kind: str, query_id: str, table_uuid: str) -> SinkKey:
    """The application that writes the rows of this kind of a sink, a query and a table.

    A new checkpoint counts from 0 again, and two tables may have an application of one name.
    """
    of = digest({"sink": owner.name, "branch": owner.branch, "query": query_id, "table": table_uuid})[:12]
    return SinkKey(f"{owner.name[:_LONGEST_SINK]}.{kind}.{of}", kind=SinkKind.TXN)


def digest_sum(*digests: int) -> int:
    """The digest of rows together: it does not depend on their order, or on their tasks."""
    return sum(digests) % (1 << (8 * DIGEST_BYTES))
