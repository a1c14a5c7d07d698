"""Tables: create and load them, their schemas, partitions and places."""

from lakesink_catalog.tables.tables import create_table, load_table, parse_identifier

__all__ = ["create_table", "load_table", "parse_identifier"]
