"""Is a catalog fit for exactly-once? Asked with the commits that lakesink sends, by many writers, on own tables."""
