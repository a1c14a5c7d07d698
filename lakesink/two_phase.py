"""The interface for custom sinks. See `lakesink_protocol.two_phase`."""

from lakesink_protocol.coordinator import Write, run_batch, writers_for
from lakesink_protocol.two_phase import (
    Durability,
    NoPreparedLog,
    Payload,
    Prepared,
    PreparedLog,
    TaskWriter,
    Transaction,
    TwoPhaseCommitSink,
)
from lakesink_protocol.votes import Vote, Votes

__all__ = [
    "Durability",
    "NoPreparedLog",
    "Payload",
    "Prepared",
    "PreparedLog",
    "TaskWriter",
    "Transaction",
    "TwoPhaseCommitSink",
    "Vote",
    "Votes",
    "Write",
    "run_batch",
    "writers_for",
]
