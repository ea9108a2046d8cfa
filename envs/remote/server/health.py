"""gRPC's health service (grpc.health.v1): whether a server takes sessions. It has no token."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # messages of grpc.health.v1
MAX_WATCHERS = 2
LOOK_S = 0.5  # between looks for watchers that have gone


def health_handler(going: threading.Event) -> Any:
    """Return gRPC's handler of the service, which says that the server serves until `going` is set."""
    watching = threading.BoundedSemaphore(MAX_WATCHERS)

    def check(request: bytes, context: Any) -> bytes:
        return NOT_SERVING if going.is_set() else SERVING

    def watch(request: bytes, context: Any) -> Iterator[bytes]:
        if not watching.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {MAX_WATCHERS} watch; ask by Check")
        try:
            yield check(request, context)
            while context.is_active() and not going.wait(LOOK_S):
                pass
            yield NOT_SERVING
        finally:
            watching.release()

    calls = {"Check": grpc.unary_unary_rpc_method_handler(check), "Watch": grpc.unary_stream_rpc_method_handler(watch)}
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", calls)
