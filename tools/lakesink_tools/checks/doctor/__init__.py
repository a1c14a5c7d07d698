"""Checks everything that a stream needs: the machine, Spark, the catalog, one table, one checkpoint."""
