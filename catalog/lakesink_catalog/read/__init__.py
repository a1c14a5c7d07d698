"""Batches and sinks, as a table shows them."""
