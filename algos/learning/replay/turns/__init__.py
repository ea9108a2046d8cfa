"""Turns of several agents in a replay: single transitions, and sequences."""
