"""The file sink: a two-phase sink that writes files into a directory.

A file is in progress while a task writes it, pending once it is closed, and committed once a marker names it. Files of
rows are called parts. They have unique names in a folder that plain readers of the directory skip, and are never
renamed. One marker, created exclusively and atomically, publishes a batch. The markers are numbered without gaps: they
are the sink's ledger and its list of committed files.
"""
