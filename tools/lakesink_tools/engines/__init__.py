"""Configuration and first queries for other engines, from the catalog's own configuration and one table."""
