"""Tables: creation and loading, schemas, partitions and locations."""

from lakesink_catalog.tables.tables import create_table, load_table, parse_identifier

__all__ = ["create_table", "load_table", "parse_identifier"]
