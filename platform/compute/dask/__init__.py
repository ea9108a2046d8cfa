"""Pool of Dask workers."""
