"""The client of a server of environments."""
