"""Backends that run tasks: this process or Dask workers, as the options of conf/compute select.

`Pool` offers the interface of `multiprocessing.Pool` on each of them.
"""

from .processes.pool import Pool as Pool
