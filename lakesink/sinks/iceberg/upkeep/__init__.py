"""Keeps a table healthy, between a stream's batches or beside it, without changing a row or deleting a file."""
