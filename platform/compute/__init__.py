"""Backends that run tasks: this process or Dask workers, as the options of conf/compute select.

`Pool`, `Process`, `Queue` and the rest offer the interface of `multiprocessing` on each of them.
"""

from multiprocessing.process import current_process as current_process
from multiprocessing.process import parent_process as parent_process

from .processes.cluster import cluster as cluster
from .processes.managers import BaseManager as BaseManager
from .processes.managers import Manager as Manager
from .processes.managers import SyncManager as SyncManager
from .processes.pipes import Pipe as Pipe
from .processes.pool import Pool as Pool
from .processes.process import Process as Process
from .processes.process import active_children as active_children
from .processes.process import cpu_count as cpu_count
from .processes.queues import JoinableQueue as JoinableQueue
from .processes.queues import Queue as Queue
from .processes.queues import SimpleQueue as SimpleQueue
from .processes.synchronize import Barrier as Barrier
from .processes.synchronize import BoundedSemaphore as BoundedSemaphore
from .processes.synchronize import Condition as Condition
from .processes.synchronize import Event as Event
from .processes.synchronize import Lock as Lock
from .processes.synchronize import RLock as RLock
from .processes.synchronize import Semaphore as Semaphore
from .processes.synchronize import Value as Value
