"""Where tasks run: in this process, or on Dask workers. Each YAML of conf/compute names one of these.

`Pool` is the standard library's `multiprocessing.Pool` on any of them.
"""

from .processes.pool import Pool as Pool
