"""The commands: a module for each, imported only when it runs."""
