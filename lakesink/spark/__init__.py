"""The only package that imports PySpark: adapters, checkpoints, queries."""
