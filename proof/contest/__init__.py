"""Sinks against what breaks them: the same data, the same deaths and the same judge for lakesink and for others."""
