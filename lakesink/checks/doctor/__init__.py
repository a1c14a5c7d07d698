"""Is everything here that a stream needs? The machine, Spark, the catalog, one table, one checkpoint."""
