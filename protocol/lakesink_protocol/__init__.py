"""The kernel of lakesink: who writes what, the ledger, the verdict, the seam of a sink. Standard library only."""
