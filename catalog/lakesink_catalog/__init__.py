"""The table side of lakesink: what a table says about a stream, and the fenced commit. Knows PyIceberg, never Spark.

Importing this package imports nothing else: executors use its pure modules without loading PyIceberg.
"""
