"""The site of the documentation: built from `docs`, and looked at in a browser."""
