"""Imported by drivers beside one that stands still in its turn: they pass it over after a second."""

from lakesink_catalog.connect import sql_waits, turns

sql_waits.LOCK_SECONDS = turns.LOCK_SECONDS = 1
