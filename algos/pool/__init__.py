"""Interface between algorithms and compute backends, and the code that workers run."""
