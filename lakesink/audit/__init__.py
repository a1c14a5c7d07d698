"""What happened to a table, told from the table alone."""
