"""One-line bugs of the product, drawn from a seed and run against the fast tests: a test of the tests.

The mutants of `proof.mutants` are written by hand, and the simulator must see each. These bugs are drawn, and some test
without Spark must see each: a survivor needs a test, or a line in `survivors.toml` with the reason why it has none.
"""
