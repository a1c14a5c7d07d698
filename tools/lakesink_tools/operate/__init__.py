"""Changes of a table, a directory or a checkpoint on request. Stop the stream first."""
