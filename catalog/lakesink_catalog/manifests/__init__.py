"""Manifests and manifest lists, read and written without losing a field."""
