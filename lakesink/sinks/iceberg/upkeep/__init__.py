"""Keeps a table healthy: few files of good size, few deleted rows, without changing a row.

A stream's own driver does this between its batches, and `lakesink maintain` beside it. Nothing here deletes a file or a
snapshot.
"""
