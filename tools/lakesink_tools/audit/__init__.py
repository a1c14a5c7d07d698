"""What happened to a table, proved from the table alone."""
