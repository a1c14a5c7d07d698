"""The seam for a sink of your own. See `lakesink_protocol.two_phase`."""

from lakesink_protocol.two_phase import (
    Durability,
    NoPreparedLog,
    Payload,
    Prepared,
    PreparedLog,
    TaskWriter,
    Transaction,
    TwoPhaseCommitSink,
    Write,
    run_batch,
    writers_for,
)

__all__ = [
    "Durability",
    "NoPreparedLog",
    "Payload",
    "Prepared",
    "PreparedLog",
    "TaskWriter",
    "Transaction",
    "TwoPhaseCommitSink",
    "Write",
    "run_batch",
    "writers_for",
]
