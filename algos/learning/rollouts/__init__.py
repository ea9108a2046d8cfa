"""Rollouts: actors, collectors, and resuming in any process."""
