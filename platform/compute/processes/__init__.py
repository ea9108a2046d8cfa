"""`multiprocessing.Pool`'s interface on the pool."""
