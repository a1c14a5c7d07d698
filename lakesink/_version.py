"""The version, in a module that imports nothing: executors and drivers compare it."""

__version__ = "0.2.0.dev0"
