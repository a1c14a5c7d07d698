"""The protocol of lakesink: batch identity, the ledger, the verdict, and the seam for sinks. Standard library only."""
