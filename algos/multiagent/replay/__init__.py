"""Replay of multi-agent experience: whole transitions or whole sequences."""
