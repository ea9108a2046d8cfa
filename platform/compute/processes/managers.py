"""Managers with the interface of `multiprocessing.managers`; their servers run where the cluster in use starts them."""

import multiprocessing.managers
from types import SimpleNamespace
from typing import Any

from .hosting import SERIALIZER
from .process import Process


class ServerProcess(Process):
    """Server of a manager, which a cluster terminates at its end."""


class BaseManager(multiprocessing.managers.BaseManager):
    """Manager of objects in a server process, as `multiprocessing.managers.BaseManager`.

    Users of its objects get ConnectionError if the server ends.
    """

    def __init__(
        self,
        address: Any = None,
        authkey: bytes | None = None,
        serializer: str = SERIALIZER,
        ctx: Any = None,
        **rest: Any,
    ) -> None:
        """Describe the manager with the arguments of the standard class; `start`, `connect` or `get_server` follows."""
        context: Any = ctx or SimpleNamespace(Process=ServerProcess)
        super().__init__(address, authkey, serializer, context, **rest)


class SyncManager(BaseManager, multiprocessing.managers.SyncManager):
    """Manager of lists, dictionaries, queues, locks and the other types of `multiprocessing.Manager`."""


def Manager() -> SyncManager:  # noqa: N802
    """Start a manager, as `multiprocessing.Manager`."""
    manager = SyncManager()
    manager.start()
    return manager
