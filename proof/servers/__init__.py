"""Real servers that the proof runs lakesink against."""
