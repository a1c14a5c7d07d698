"""The committed batches of a sink, read one after the other: which come after a position, and their files.

The room for whoever follows a table: `position` says how far a consumer is, `past` what the table shows of its
snapshots, `steps` which batches come next, and `batch_files` what one batch added. No Spark.
"""
