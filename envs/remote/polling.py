"""Who reads from the network, of gRPC's threads and ours."""

import os


def poll_where_one_waits() -> None:
    """Have the thread that waits for a message read it from the network itself, unless the user says otherwise.

    Else each message passes through two or three threads of gRPC more. It must be said before gRPC is imported, and of
    both sides, as processes inherit it; where gRPC is there already, messages only take longer.
    """
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
    # While nobody waits, gRPC looks after a client's connection each second, and not each five, in which the server's
    # pings would be answered too late.
    os.environ.setdefault("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "1000")
