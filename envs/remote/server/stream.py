"""A server's side of a stream: a client's frames as they arrive."""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from envs.remote.frames import Frame, Kind, split
from envs.remote.values import Garbled


class FrameStream:
    """A client's frames as they arrive, read by a thread of their own."""

    def __init__(self, requests: Iterator[bytes], context: Any) -> None:
        self.over = False  # nothing more comes, or is to be done here
        self.broken: str | None = None  # what was wrong with a frame
        self.context = context
        self.seen = time.monotonic()  # when a frame came last
        self.wake = lambda: None  # has the thread that waits for environments look here
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(requests,), name="frames", daemon=True).start()

    def next(self, block: bool, timeout_s: float | None = None) -> Frame | None:
        """Return the next frame; None where there is none yet, or something else is to be looked at."""
        try:
            return self._frames.get(block, timeout_s)
        except queue.Empty:
            return None

    def has_news(self) -> bool:
        """Return whether there is anything to look at."""
        return not self._frames.empty()

    def call(self) -> None:
        """Have the thread at work look at what has changed."""
        self._frames.put(None)
        self.wake()

    def cut(self) -> None:
        """End the stream from another thread."""
        self.over = True
        self.context.cancel()
        self.call()

    def _read(self, requests: Iterator[bytes]) -> None:
        try:
            for data in requests:
                self.seen = time.monotonic()
                frame = split(data)
                if frame.kind is not Kind.BEAT:
                    self._frames.put(frame)
                    self.wake()
        except Garbled as error:
            self.broken = str(error)
        except Exception:  # gRPC's way to say that the client has gone
            pass
        self.over = True
        self.call()
