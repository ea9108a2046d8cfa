"""Calls in threads of their own, for worlds of which each waits for clients that may wait in another."""

import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial

from envs.remote.client.link import Link
from envs.remote.client.place import Lost

LOOK_S = 0.1  # between looks whether other streams are lost, too


class CallsApart:
    """Calls under way; the first error is raised at once, whatever the others still wait for."""

    def __init__(self) -> None:
        self._ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._running = 0

    def begin(self, call: Callable[[], None]) -> None:
        """Begin one more."""
        self._running += 1
        threading.Thread(target=self._run, args=(call,), name="apart", daemon=True).start()

    def wait(self, look: Callable[[], None] = lambda: None, every_s: float | None = None) -> None:
        """Wait until all have ended; `look`, which may begin others, is called meanwhile, and after the last end."""
        look()
        while self._running:
            with contextlib.suppress(queue.Empty):
                error = self._ends.get(timeout=every_s)
                self._running -= 1
                if error is not None:
                    raise error
            look()

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self._ends.put(error)
        else:
            self._ends.put(None)


def recover_together(link: Link, error: Lost) -> None:
    """Get the stream of a link again, and for as long as that takes those of others beside it that are lost too.

    Clients of joint worlds come to where they were together: whoever is waited for in one world may wait in another.

    Raises:
        EnvError: no server could be reached, or one could not come to where the lost one was.
        ConfigError: the server refuses.
    """
    if not link.beside:
        link.recover(error)
        return
    calls, waiting = CallsApart(), [link, *(one for one in link.beside if one is not link)]

    def begin() -> None:
        for one in [one for one in waiting if one is link or one.is_lost]:
            waiting.remove(one)
            calls.begin(partial(one.recover, error))

    begin()
    calls.wait(begin, LOOK_S)
