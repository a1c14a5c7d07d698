"""Build and send one atomic change of a table."""
