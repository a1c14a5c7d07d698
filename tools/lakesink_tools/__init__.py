"""Instruments of a sink: what looks at it from outside, and runs in no query."""
