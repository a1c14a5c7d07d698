"""Kafka -> event-time windows -> tables, exactly once: an application to copy, and a story that kills it."""
