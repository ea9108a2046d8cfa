"""Environments as users write them, which do more to their process than step."""

import asyncio
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from typing import Any

import gymnasium
import numpy as np


class Steps(gymnasium.Env):
    """Ten steps that pay 1 each."""

    observation_space: gymnasium.Space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space: gymnasium.Space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t >= 10, False, {}


class Simulator(Steps):
    """Starts a process, handles a signal and asks for an event loop."""

    def __init__(self) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self.loop = asyncio.get_event_loop_policy().get_event_loop()
        self.process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
        self.process.start()

    def close(self) -> None:
        self.process.terminate()
        self.process.join()


class Wanderer(Steps):
    """Changes the working directory when it is made."""

    def __init__(self) -> None:
        os.chdir(tempfile.mkdtemp())
        np.seterr(all="raise")


class TimedOut(BaseException):
    """Exception as the package func_timeout has it."""


class Impatient(Steps):
    """Raises what is no Exception."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise TimedOut("the simulator took more than 1 s")


class Unmade(Steps):
    """Has a fault in its constructor, which takes no arguments."""

    def __init__(self) -> None:
        self.table = int("")


class Lingering(Steps):
    """Leaves a thread behind."""

    def __init__(self) -> None:
        threading.Thread(target=threading.Event().wait, name="left-behind").start()


class Narrow(Steps):
    """Takes actions of double precision, whose bounds single precision cannot express."""

    action_space = gymnasium.spaces.Box(np.array([-0.1, 0.3]), np.array([0.1, 0.7]), dtype=np.float64)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is outside"
        return super().step(action)


class Distant(Steps):
    """Observes a number that single precision cannot express."""

    observation_space = gymnasium.spaces.Box(0, np.finfo(np.float64).max, (1,), np.float64)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([np.finfo(np.float64).max]), *super().step(action)[1:]


class Offset(gymnasium.Env):
    """Twenty steps whose observations need normalization."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self._observe(), 1.0, False, self.t >= 20, {}

    def _observe(self) -> Any:
        return np.array([999 + 2 * self.np_random.integers(2)], np.float32)


class Shaped(Steps):
    """Observes arrays of a shape."""

    def __init__(self, shape: list[int]) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 1, tuple(shape), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, True, False, {}


if __name__ == "__main__":
    import paddock

    small = [
        "vec.num_envs=2",
        "algo.num_steps=16",
        "algo.minibatch_size=32",
        "algo.hidden_sizes=[8]",
        "budget.iterations=1",
    ]
    paddock.run("algo=ppo", "env=gymnasium", "env.id=__main__:Steps", "compute=local", "compute.workers=1", *small)
