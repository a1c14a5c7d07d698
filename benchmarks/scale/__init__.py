"""`make bench-scale`: how cost grows as the work grows, axis by axis."""
