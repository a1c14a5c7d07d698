"""The command line, which needs no Spark."""
