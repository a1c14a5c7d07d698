"""The receipts of a task that writes rows for a side table too, as one text of bytes."""

from collections.abc import Mapping

from lakesink.rows.side_rows import SidePlan
from lakesink_protocol.votes import receipt_rejected

_LENGTH_BYTES = 4


def packed(receipt: bytes, of_side: bytes) -> bytes:
    """Both receipts; that of the side table comes last."""
    return len(receipt).to_bytes(_LENGTH_BYTES) + receipt + of_side


def unpacked(written: bytes, side: SidePlan) -> Mapping[str, bytes]:
    """The receipts by participant; raises WriteError for bytes that `packed` does not return."""
    end = _LENGTH_BYTES + int.from_bytes(written[:_LENGTH_BYTES])
    if not _LENGTH_BYTES < end < len(written):
        raise receipt_rejected("a task sent no receipt of its rows for the table beside its own")
    return {side.owner: written[_LENGTH_BYTES:end], side.participant: written[end:]}
