"""Sinks on the two-phase seam."""
