"""Calls in threads of their own, for worlds of which each waits for clients that may wait in another."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from paddock.envs.remote.client.link import Link
from paddock.envs.remote.client.place import Lost
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted

LOOK_S = 0.1  # between looks whether other streams are lost, too


class CallsApart:
    """Calls under way at the links of several worlds; the first error is raised at once, whatever the others wait for.

    Where that or Ctrl-C ends the wait, the others go on, and are waited for before anything else is asked of the links.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        """Have no call under way."""
        self._links = links
        self._threads: list[threading.Thread] = []
        self._recovering: dict[threading.Thread, Link] = {}
        self._ends: deque[tuple[threading.Thread, BaseException | None]] = deque()
        self._ended = threading.Event()

    @property
    def is_here(self) -> bool:
        """Whether the thread that asks is such a call."""
        return threading.current_thread() in self._threads

    def call(self, calls: Sequence[Callable[[], None]]) -> None:
        """Do these, each in a thread of its own."""
        for one in calls:
            self._begin(one)
        self.wait()

    def recover(self, link: Link, error: Lost) -> None:
        """Get the stream of a link again, and for as long as that takes those of others beside it that are lost too.

        Clients of joint worlds come to where they were together, as whoever is waited for in one may wait in another.

        Raises:
            EnvError: no server could be reached, or one could not come to where the lost one was.
            ConfigError: the server refuses.
        """
        self._recover(link, error)
        self._look()
        self.wait()

    def wait(self) -> None:
        """Wait until no call is under way; raises what one raised."""
        while self._threads:
            together = bool(self._recovering)
            self._ended.wait(LOOK_S)
            self._ended.clear()
            self._collect()
            if together:  # after the last end, too: a stream is first seen to be lost at the second look
                self._look()

    def _look(self) -> None:
        """Get those streams again, too, that are lost."""
        for link in self._links:
            if link not in self._recovering.values() and link.is_lost:
                self._recover(link, Lost("another stream is lost, too"))

    def _recover(self, link: Link, error: Lost) -> None:
        with Uninterrupted():
            self._recovering[self._begin(partial(link.recover, error))] = link

    def _begin(self, call: Callable[[], None]) -> threading.Thread:
        with Uninterrupted():
            thread = threading.Thread(target=self._run, args=(call,), name="apart", daemon=True)
            self._threads.append(thread)
            thread.start()
        return thread

    def _collect(self) -> None:
        """Forget calls that have ended; raise the first error of theirs."""
        errors = []
        with Uninterrupted():
            while self._ends:
                thread, error = self._ends.popleft()
                self._threads.remove(thread)
                self._recovering.pop(thread, None)
                errors += [] if error is None else [error]
        if errors:
            raise errors[0]

    def _run(self, call: Callable[[], None]) -> None:
        error = None
        try:
            call()
        except BaseException as raised:
            error = raised
        self._ends.append((threading.current_thread(), error))
        self._ended.set()
