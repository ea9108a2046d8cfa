"""The seam between algorithms and compute, and what a worker runs; imports NumPy and the standard library only."""
