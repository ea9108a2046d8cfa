"""The pool over Dask's workers."""
