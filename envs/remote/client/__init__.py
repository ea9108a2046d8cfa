"""The side that asks: connections, what is kept against their loss, and the face of a vector environment."""

import os

# The thread that waits for an answer then reads it from the network itself; else each passes through three more. While
# nobody waits, gRPC looks after a connection each second in place of each five, in which the server's pings would be
# answered too late. It must be said before gRPC is imported; where that has been done, answers only take longer.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client")
os.environ.setdefault("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "1000")
