"""The committed batches of a sink, read one after the other: which come after a position, and their files.

The room for whoever follows a table: `position` says how far a consumer is, `follow` asks for what is new, `steps`
decides which batches come next, and `batch_files` says what one batch added. No Spark.
"""
