"""Record batches as a table's columns, and rows that do not fit. Imports PyArrow only."""
