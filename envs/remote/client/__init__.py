"""Client of an environment server."""
