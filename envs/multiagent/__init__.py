"""Worlds: environments of several agents, in one form whatever interface they have."""
