"""The only place that imports PySpark: adapters, checkpoints, queries."""
