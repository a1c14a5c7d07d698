"""Adapters to Spark: the public functions, the data source, and the running query. All need PySpark."""
