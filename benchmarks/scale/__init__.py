"""How cost grows as the work grows, axis by axis."""
