"""Checks whether a catalog supports exactly-once: sends lakesink's commits from many writers to scratch tables."""
