"""Environments behind gRPC: a server, and clients that cannot tell."""
