"""Replay of multi-agent experience, as whole transitions."""
