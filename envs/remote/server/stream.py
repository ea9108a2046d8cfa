"""A server's side of a stream: a client's frames as they arrive, and the answers to it."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from paddock.envs.remote.frames import Frame, Kind, split
from paddock.envs.remote.values import Garbled

LOOK_S = 0.5  # between looks whether a client is there of which nothing more is taken
MOST_ORDERS = 64  # frames that wait for the session, before no more are taken from the network
MOST_WAITING = 8  # answers that a client has not read, before its session waits for it


class FrameStream:
    """A client's frames as they arrive, by gRPC or a Unix domain socket, and what it is told.

    gRPC's public stream wants a thread that asks for what arrives, and one that waits until what was said is on its
    way; where two cores are busy, each hand-over to a thread takes as long as the message. So the call is operated here
    as gRPC's own server does it, by the thread that all events come to; a version of gRPC that has it in another form
    is used by the public interface.
    """

    def __init__(self, requests: Iterator[bytes], context: Any) -> None:
        self.over = False  # nothing more comes, or is to be done here
        self.broken: str | None = None  # what was wrong with a frame
        self.context = context
        self._seen = time.monotonic()  # when a frame came last
        self.wake: Callable[[], None] = lambda: None  # has the thread that waits for environments look here
        self.offer: Callable[[Frame], bool] = lambda frame: False  # does what a frame asks for at once, if it can
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._held = False  # whether nothing more is taken from the network
        self._telling = False  # whether an answer waits for the client to take it
        if not context.add_callback(self._end):  # where nothing is asked for, nothing else says that the client went
            self.over = True
        self._under = _find_operations(context)
        if self._under is None:
            threading.Thread(target=self._read, args=(requests,), name="frames", daemon=True).start()
            return
        self._waiting: deque[bytes] = deque()  # answers
        self._sending = False
        context.send_initial_metadata(())
        self._ask()

    @property
    def seen(self) -> float:
        """When a frame came last; while none is taken, signs of life wait with the others, and it is not the client's.

        Where the client in turn takes no answer, it is.
        """
        return time.monotonic() if self._held and not self.over and not self._telling else self._seen

    def next(self, block: bool, timeout_s: float | None = None) -> Frame | None:
        """Return the next frame; None where there is none yet, or something else is to be looked at."""
        try:
            return self._frames.get(block, timeout_s)
        except queue.Empty:
            return None
        finally:
            if self._held:
                self._go_on()

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

    def carry(self, answers: Iterator[bytes]) -> Iterator[bytes]:
        """Send answers as they come; return those that whoever carries the stream is to send."""
        if self._under is None:
            for answer in answers:
                self._telling = True
                yield answer
                self._telling = False
            return
        try:
            for answer in answers:
                self._tell(answer)
        finally:
            self.flush()

    def flush(self) -> None:
        """Wait until the answers are on their way."""
        if self._under is not None:
            self._wait(0)

    def _take(self, data: bytes) -> bool:
        """Take what has arrived; return whether more may come."""
        self._seen = time.monotonic()
        try:
            frame = split(data)
        except Garbled as error:
            self.broken = str(error)
            return False
        if frame.kind is not Kind.BEAT and not self.offer(frame):
            self._frames.put(frame)
            self.wake()
        return True

    def _has_room(self) -> bool:
        """Return whether the next frame may be taken; else that is done once fewer wait."""
        if self._frames.qsize() < MOST_ORDERS:
            return True
        with self._room:
            self._held = True  # first: whoever takes a frame from now on looks at it
            self._held = self._frames.qsize() >= MOST_ORDERS
            return not self._held

    def _go_on(self) -> None:
        """Take frames from the network again, if few wait."""
        with self._room:
            if not self._held or self._frames.qsize() > MOST_ORDERS // 2:
                return
            self._held, self._seen = False, time.monotonic()
            self._room.notify_all()
        if self._under is not None:
            self._ask()

    def _end(self) -> None:
        self.over = True
        with self._room:
            self._room.notify_all()
        self.call()

    def _read(self, requests: Iterator[bytes]) -> None:
        try:
            for data in requests:
                if not self._take(data) or not self._wait_for_room():
                    break
        except Garbled as error:
            self.broken = str(error)
        except Exception:  # gRPC's way to say that the client has gone
            pass
        self._end()

    def _wait_for_room(self) -> bool:
        """Wait until the next frame may be taken; False where none comes any more."""
        while not self._has_room():
            if self.over or not self.context.is_active():
                return False
            with self._room:
                self._room.wait_for(lambda: not self._held or self.over, LOOK_S)
        return True

    # Without gRPC's public interface. What is under way stands in the call's `due`, as gRPC's server ends with it.

    def _ask(self) -> None:
        """Ask for the next message; where none can come, the stream is over."""
        if not self._begin(self._under.receive(0), self._under.received, self._received):
            self._end()

    def _received(self, event: Any) -> Any:
        """See to a message, in the thread of all events."""
        done = self._done(self._under.received)
        data = event.batch_operations[0].message()
        if data is None or not self._take(data):
            self._end()
        elif self._has_room():
            self._ask()
        return done

    def _tell(self, answer: bytes) -> None:
        """Send an answer, after those before it."""
        if len(self._waiting) >= MOST_WAITING:  # which only this thread makes more
            self._wait(MOST_WAITING - 1)
        with self._under.state.condition:
            if self._sending:
                self._waiting.append(answer)
            else:
                self._sending = self._begin(self._under.send(answer, 0), self._under.sent, self._sent)

    def _sent(self, event: Any) -> Any:
        """Send the next answer, in the thread of all events."""
        with self._under.state.condition:
            done = self._done(self._under.sent)
            self._sending = False
            if self._waiting:
                self._sending = self._begin(self._under.send(self._waiting.popleft(), 0), self._under.sent, self._sent)
            self._under.state.condition.notify_all()
        return done

    def _wait(self, most: int) -> None:
        """Wait until at most so many answers wait, or nobody is there to read them."""
        with self._under.state.condition:
            self._under.state.condition.wait_for(
                lambda: len(self._waiting) + self._sending <= most or not self._under.is_active(self._under.state)
            )

    def _begin(self, operation: Any, name: str, then: Any) -> bool:
        state = self._under.state
        with state.condition:
            if not self._under.is_active(state):
                return False
            self._under.call.start_server_batch((operation,), then)
            state.due.add(name)
            return True

    def _done(self, name: str) -> Any:
        with self._under.state.condition:
            return self._under.finish(self._under.state, name)


def _find_operations(context: Any) -> Any:
    """Return what a call of gRPC's server is operated by; None where this version has another form of it."""
    try:
        from grpc import _server
        from grpc._cython import cygrpc

        return SimpleNamespace(
            call=context._rpc_event.call,
            state=context._state,
            send=cygrpc.SendMessageOperation,
            receive=cygrpc.ReceiveMessageOperation,
            sent=_server._SEND_MESSAGE_TOKEN,
            received=_server._RECEIVE_MESSAGE_TOKEN,
            is_active=_server._is_rpc_state_active,
            finish=_server._possibly_finish_call,
        )
    except (ImportError, AttributeError):
        return None
