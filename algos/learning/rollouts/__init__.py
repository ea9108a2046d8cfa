"""Rollouts: what actors play, where, and how any process goes on from there."""
