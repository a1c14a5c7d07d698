"""Sink keys and batches, see `lakesink_protocol.identity`."""

from lakesink_protocol.identity import MAIN_BRANCH, Batch, SinkKey, SinkKind, stream_batch, transaction_batch

__all__ = ["MAIN_BRANCH", "Batch", "SinkKey", "SinkKind", "stream_batch", "transaction_batch"]
