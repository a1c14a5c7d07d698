"""The command line: looks at tables, writes nothing to them, and needs no Spark."""
