"""Rows from the JVM to Arrow batches, and the tasks that write them."""
