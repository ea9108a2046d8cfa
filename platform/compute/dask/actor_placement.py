"""Where objects live: each on one worker, moved to another when that one is lost, falls silent or leaves."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

from algos.pool.protocol import PoolError

from .actor_handle import Remote
from .connection import Link, as_tuple
from .tasks import Ended, Item


class Workers(Protocol):
    """What the placement of objects asks of the dispatcher."""

    links: dict[str, Link]  # by address
    failure: PoolError | None
    timeout_s: float | None  # of a call

    def hold(self, link: Link, item: Item, seconds: float | None) -> int:
        """Note that a worker has an item; returns the number under which it knows it."""
        ...

    def place(self, link: Link) -> None:
        """Note whether a worker may be given work, and wants some."""
        ...

    def finish(self, ends: Iterable[tuple[Item, Ended | None]]) -> None:
        """Tell each source what of its own has ended."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine beside everything else."""
        ...


class Homes:
    """The objects of a dispatcher's workers. All of it belongs to the client's event loop."""

    def __init__(self, dispatcher: Workers) -> None:
        self._dispatcher = dispatcher
        self._remotes: list[Remote] = []

    def add(self, remote: Remote) -> None:
        """Give a new object a worker."""
        self._remotes.append(remote)
        self._move([remote])

    def remove(self, remote: Remote) -> None:
        """Let an object go."""
        if remote not in self._remotes:
            return
        self._remotes.remove(remote)
        if remote.link is not None:
            remote.link.send("drop", remote.key)
        error = PoolError("the object was closed while a call of it was open")
        self._dispatcher.finish([(item, Ended(item, error=error)) for item in remote.items.values()])

    def call(self, remote: Remote, item: Item) -> None:
        """Send a call to its object."""
        failure = self._dispatcher.failure
        if failure is not None:
            self._dispatcher.finish([(item, Ended(item, error=failure))])
            return
        remote.items[item.index] = item
        if remote.link is None:
            self._move([remote])
        elif remote.made:
            self._send(remote, item)

    def settle(self) -> None:
        """Find a worker for the objects that have none."""
        self._move([remote for remote in self._remotes if remote.link is None])

    def leave(self, link: Link) -> None:
        """Move a worker's objects elsewhere."""
        self._move([remote for remote in self._remotes if remote.link is link])

    def open_calls(self) -> list[Item]:
        """Calls that have not ended, on a worker or not."""
        return [item for remote in self._remotes for item in remote.items.values()]

    def _move(self, remotes: Iterable[Remote]) -> None:
        """Find each object a worker: the one with the fewest objects for its threads."""
        links = self._dispatcher.links
        for remote in remotes:
            lost = remote.link is not None
            if remote.link is not None and remote.link.address in links:
                remote.link.send("drop", remote.key)
            others = [other.link for other in self._remotes if other is not remote]
            fitting = [link for link in links.values() if link.usable and link.parallel(remote.needs)]
            remote.link = min(fitting, key=lambda link: others.count(link) / link.threads, default=None)
            remote.made = False
            remote.lost |= lost
            if remote.link is None:
                continue
            if remote.lost and remote.restore is not None:
                self._dispatcher.spawn(self._restore(remote, remote.link))
            else:
                self._make(remote, remote.link)

    async def _restore(self, remote: Remote, link: Link) -> None:
        assert remote.restore is not None
        try:
            remote.set_factory(await asyncio.to_thread(remote.restore))
        except Exception as error:
            if remote.link is link:
                remote.link = None  # the next call tries again
                self._dispatcher.finish([(item, Ended(item, error=error)) for item in list(remote.items.values())])
            return
        if remote.link is link:
            self._make(remote, link)

    def _make(self, remote: Remote, link: Link) -> None:
        remote.made, remote.lost = True, False
        remote.rename()
        link.share(remote.blobs)
        link.send("make", remote.key, remote.data)
        for item in list(remote.items.values()):
            self._send(remote, item)

    def _send(self, remote: Remote, item: Item) -> None:
        assert remote.link is not None
        number = self._dispatcher.hold(remote.link, item, None)
        remote.link.share(item.blobs)
        remote.link.send("call", remote.key, number, item.data, as_tuple(remote.needs), self._dispatcher.timeout_s)
        self._dispatcher.place(remote.link)
