"""Files in a directory as a two-phase sink: in progress, then pending once closed, then committed by a marker.

Parts get unique names in a folder that plain readers of the directory skip, and are never renamed. One marker, created
exclusively and atomically, publishes a batch. The markers are numbered without a gap: they are the sink's ledger, and
the list of files that a reader may read.
"""
