"""Interface of `multiprocessing.Pool` on any compute backend."""
