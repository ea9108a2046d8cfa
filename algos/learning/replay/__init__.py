"""Replay: transitions on the disk, and batches drawn of them."""
