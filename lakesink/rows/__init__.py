"""Record batches as a table's columns, changes of rows, and rows that do not fit. Imports PyArrow only."""
