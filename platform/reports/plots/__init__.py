"""Algorithm-specific figures."""
