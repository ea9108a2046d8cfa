"""Sections of the report's page, one file each."""
