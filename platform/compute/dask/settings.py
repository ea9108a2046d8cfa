"""Dask's settings for the process that holds a pool; they stay, since Dask reads them at any time."""

CONNECT_S = 5.0  # a scheduler that has not answered by then is out of reach

LEAN = {
    "distributed.comm.timeouts.connect": CONNECT_S,
    # Watching itself costs Dask a tenth of a core on two idle workers, and it shares the tasks' cores.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.preload": ["paddock.algos.pool.worker"],
    "distributed.nanny.preload": ["paddock.algos.pool.worker"],
    # Dask closes a nanny whose worker was lost so long ago and is not there now, though it may be starting a third, and
    # forgets lost jobs of one worker alone. The fleet replaces those that ended.
    "distributed.deploy.lost-worker-timeout": "1000 days",
    # And it ends workers that were silent for five minutes: all of them, where this process was stopped for so long.
    # The fleet replaces what is stuck.
    "distributed.scheduler.worker-ttl": "1000 days",
}
