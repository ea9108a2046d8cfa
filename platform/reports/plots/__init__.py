"""Algorithm-specific pictures."""
