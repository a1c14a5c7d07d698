"""Exactly-once sink from Spark Structured Streaming into Apache Iceberg tables."""

__version__ = "0.1.0"
