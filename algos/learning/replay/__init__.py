"""Replay buffers on disk, with uniform and prioritized sampling."""
