"""`compute=serial`: the pool that is this process, which workers use too, and which therefore lives in `algos`."""

from algos.serial import SerialPool

__all__ = ["SerialPool"]
