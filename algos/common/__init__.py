"""Utilities shared by all algorithms: keyed randomness, timing, thread limits."""
