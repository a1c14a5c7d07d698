"""Checks that machine, catalog and storage are suitable."""
