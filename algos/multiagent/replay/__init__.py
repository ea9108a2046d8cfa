"""Replay of agents that act in turns, die and are born: whole transitions, and whole sequences."""
