"""Spark's checkpoint, read without PySpark."""
