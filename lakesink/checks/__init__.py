"""Is everything fit: machine, catalog, storage."""
