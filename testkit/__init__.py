"""What tests, proof, servers and benchmarks share: builders, catalogs that fail, drivers in processes."""
