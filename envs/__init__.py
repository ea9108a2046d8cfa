"""Environments; this package imports nothing else of the project."""
