"""Emulation: environments with one flat Box of observations and one flat action, for other libraries."""
