"""How Spark finds ``format("lakesink")``: it imports each package ``pyspark_*`` and registers its `DefaultSource`."""

from lakesink.spark.source.data_source import LakesinkDataSource as DefaultSource

__all__ = ["DefaultSource"]
