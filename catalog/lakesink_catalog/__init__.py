"""The catalog side of lakesink: reads the state of a sink from a table, and makes the fenced commit.

Uses PyIceberg, never Spark. Importing this package imports nothing else, so executors can use its pure modules
without loading PyIceberg.
"""
