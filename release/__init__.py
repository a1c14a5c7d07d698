"""Builds what is published, checks it where nothing else is installed, and cuts the notes of a version."""
