"""Compacts the small files that batches of changes leave: which ones together, and how their live rows are rewritten.

A batch of changes deletes rows of nearly every file with recent rows, so each small file costs all later batches and
all readers. Files of similar size become one, as in the size-tiered compaction of LSM trees.
"""
