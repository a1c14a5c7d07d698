"""Finds the live rows of changed keys: in which data file, and at which position.

A data file never changes, so what is found in one stays true. Only the deletes of a data file depend on the head.
"""
