"""Where tasks run: in this process, or on Dask workers. Each YAML of conf/compute names one of these."""
