"""Benchmarks: ratios in one run, printed; never part of the tests."""
