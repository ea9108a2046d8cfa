"""Algorithms: what learns from experience. The middle floor, which may import `envs` and nothing above it."""
