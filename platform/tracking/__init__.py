"""Metrics tracking: journals, the console, and mirrors that may fail."""
