"""The server's side of a stream: a client's frames."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from paddock.envs.remote.frames import Frame, Kind, decode_frame

log = logging.getLogger("paddock.envs.remote")

MAX_QUEUED = 64  # waiting frames above which no more are read from the network
FULL_S = 0.01  # interval of checks whether the queue has space again


class FrameStream:
    """A client's frames, read by a separate thread.

    Attributes:
        over: the stream has ended.
        wake: wakes the thread that waits for environments.
    """

    def __init__(self, requests: Iterator[bytes], context: Any) -> None:
        self.over = False
        self.context = context
        self.wake: Callable[[], None] = lambda: None
        self._seen, self._full = time.monotonic(), False
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(requests,), name="frames", daemon=True).start()

    @property
    def seen(self) -> float:
        """Return the time of the last frame; the current time while a full queue keeps heartbeats from being read."""
        return time.monotonic() if self._full and not self.over else self._seen

    def next(self, block: bool, timeout_s: float | None = None) -> Frame | None:
        """Return the next frame; None if there is none yet or the state has changed."""
        try:
            return self._frames.get(block, timeout_s)
        except queue.Empty:
            return None

    def has_news(self) -> bool:
        """Return whether a frame or a change is waiting."""
        return not self._frames.empty()

    def notify(self) -> None:
        """Wake the session's thread."""
        self._frames.put(None)
        self.wake()

    def cut(self) -> None:
        """End the stream from another thread."""
        self.over = True
        self.context.cancel()
        self.notify()

    def _read(self, requests: Iterator[bytes]) -> None:
        try:
            for data in requests:
                self._seen = time.monotonic()
                frame = decode_frame(data)
                if frame.kind is not Kind.HEARTBEAT:
                    self._frames.put(frame)
                    self.wake()
                while self._frames.qsize() >= MAX_QUEUED and self.context.is_active() and not self.over:
                    self._full = True
                    time.sleep(FULL_S)
                self._full = False
        except Exception as error:  # a malformed frame, or the client has disconnected
            log.debug("a stream ends: %s", error)
        self.over = True
        self.notify()
