"""Files in a directory as a two-phase sink: in progress while written, pending once closed, committed by a marker.

Parts are written under names that nothing else has, where a plain reader of the directory does not look, and are never
renamed. A batch is published by one marker, created exclusively and all at once; the markers, numbered without a gap,
are both the ledger of the sink and the list of files that a reader may read.
"""
