"""One thread, one seed: the real ledger, verdict, prepare and commit code in a world where everything may go wrong.

The world is simulated, the code is not: `IcebergSink`, the coordinator and the checkpoint's reader run as they are
shipped, over a clock, a store, a catalog, a network and a Spark that are plain Python objects. Every call that would
leave the process is a place where the scheduler may let somebody else go on, stop the process for hours, or kill it.
The idea is FoundationDB's and TigerBeetle's deterministic simulation.
"""
