"""Shared by tests, proof, servers and benchmarks: builders, catalogs that fail, drivers in processes."""
