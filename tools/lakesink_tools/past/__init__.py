"""What a table shows of its past: its batches, its rows as of one of them, and where these came from. Only reads."""
