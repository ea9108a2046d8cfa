"""gRPC's health service: whether a server takes sessions. It has no token, and who asks learns nothing else."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc

from paddock.envs.remote import guard

HEALTH = "grpc.health.v1.Health"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # messages of grpc.health.v1
WATCHERS = 2  # at most
LOOK_S = 0.5  # between looks for watchers that have gone


class Health:
    """Answers whoever can connect."""

    def __init__(self, going: threading.Event) -> None:
        """Answer that the server serves until it is going."""
        self._going = going
        self._watching = threading.BoundedSemaphore(WATCHERS)

    def handler(self) -> Any:
        """Return gRPC's handler of the service."""
        calls = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }
        return grpc.method_handlers_generic_handler(HEALTH, calls)

    def _check(self, request: bytes, context: Any) -> bytes:
        if request not in (b"", _named(guard.SERVICE)):
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return NOT_SERVING if self._going.is_set() else SERVING

    def _watch(self, request: bytes, context: Any) -> Iterator[bytes]:
        if not self._watching.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {WATCHERS} watch; ask by Check")
        try:
            yield self._check(request, context)
            while context.is_active() and not self._going.wait(LOOK_S):
                pass
            yield NOT_SERVING
        finally:
            self._watching.release()


def _named(service: str) -> bytes:
    """Return grpc.health.v1's request for a service."""
    return b"\x0a" + bytes([len(service)]) + service.encode()
