"""Environments in worker processes, on shared memory."""
