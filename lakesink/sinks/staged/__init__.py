"""What sinks share whose tasks stage a batch in parts, which nobody reads before the driver publishes the batch.

A target has two ports: its ledger, which knows what is committed, and the publishing of a prepared batch.
"""
