"""Environments with every kind of space, and with every kind of fault; `toy_envs:Parts-v0` and so on."""

import copy
import math
import os
import pkgutil
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Parts(gymnasium.Env):
    """Nested observations and a multi-discrete action; its infos have something of everything."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (3, 2), np.uint8),
            "count": spaces.Discrete(100),
            "pair": spaces.Tuple((spaces.MultiBinary(4), spaces.Box(-9, 9, (), np.float64))),
        }
    )
    action_space = spaces.MultiDiscrete([3, 4])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        self.limit = int(self.np_random.integers(3, 9))
        return self._observe(np.zeros(2)), {"limit": self.limit, "options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        over = self.count >= self.limit
        info: dict[str, Any] = {"where": np.full(2, self.count), "deep": {"name": "x" * self.count}}
        ended = over and self.limit % 2 == 0
        return self._observe(action), self.np_random.normal(), ended, over and not ended, info if self.count % 2 else {}

    def _observe(self, action: Any) -> Any:
        image = self.np_random.integers(0, 255, (3, 2), dtype=np.uint8)
        number = np.float64(self.np_random.normal() + action.sum())
        return {"image": image, "count": self.count, "pair": (np.array([0, 1, 1, 0], np.int8), number)}


class Cell(gymnasium.Env):
    """Discrete observations; every info says the same."""

    observation_space = spaces.Discrete(12, start=3)
    action_space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(5, 9))
        return self.cell, {"chance": 1.0}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.cell += int(action)
        return self.cell, float(action), self.cell in (3, 14), False, {"chance": 0.5}


class Levers(gymnasium.Env):
    """Several kinds of actions at once, all of which are seen and paid for."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Dict(
        {
            "aim": spaces.Tuple([spaces.Box(-1, 3, (2,), np.float32)]),
            "move": spaces.Discrete(3, start=-1),
            "keys": spaces.MultiBinary(2),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.np_random.standard_normal(3).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.count += 1
        seen = np.array([action["aim"][0].sum(), action["move"], action["keys"].sum()], np.float32)
        paid = float(action["move"] + action["keys"].sum() - np.abs(action["aim"][0] - 2).sum())
        return seen + self.np_random.standard_normal(3).astype(np.float32), paid, self.count >= 6, False, {}


SPACES: dict[str, spaces.Space[Any]] = {
    "padded": spaces.Dict(
        a=spaces.Dict(x=spaces.Box(-1, 1, (1,)), y=spaces.Box(0, 9, (1,), np.uint8)), b=spaces.Box(0, 9, (3,), np.uint8)
    ),
    "text": spaces.Dict(mission=spaces.Text(9), image=spaces.Box(0, 255, (3, 2), np.uint8)),
    "pile": spaces.Dict(pile=spaces.Sequence(spaces.Box(-1, 1, (2,))), near=spaces.Discrete(3, start=-1)),
    "stacked": spaces.Sequence(spaces.Dict(x=spaces.Discrete(4), y=spaces.MultiBinary(3)), stack=True),
    "rooms": spaces.Tuple([spaces.Sequence(spaces.Box(-1, 1, (2,))), spaces.MultiDiscrete([2, 3])]),
    "start": spaces.Discrete(4, start=-1),
    "bits": spaces.MultiBinary([2, 3]),
    "number": spaces.Box(-1, 1, (), np.float64),
    "mixed": spaces.Dict(gear=spaces.Discrete(3, start=-1), wheel=spaces.Box(-1, 1, (2,)), lamps=spaces.MultiBinary(2)),
}


def plain(element: Any) -> Any:
    """Return an element as lists and Python's own numbers, keys in order."""
    if isinstance(element, dict):
        return [(key, plain(element[key])) for key in sorted(element)]
    return [plain(part) for part in element] if isinstance(element, tuple) else np.asarray(element).tolist()


GYMNASIUMS: list[tuple[spaces.Space[Any], dict[str, Any]]] = [  # those of its tests/spaces/utils.py whose size varies
    *((spaces.Text(6, **charset), {}) for charset in ({}, {"min_length": 3}, {"charset": "abcdef"})),
    (spaces.Sequence(spaces.Discrete(4)), {"": 60}),
    (spaces.Sequence(spaces.Dict(feature=spaces.Box(0, 1, (3,)))), {"": 60}),
    (spaces.Sequence(spaces.Box(0, 1), stack=True), {"": 60}),
    (spaces.Sequence(spaces.Dict(a=spaces.Box(0, 1, (3,)), b=spaces.Discrete(5)), stack=True), {"": 60}),
]
SPACES["gymnasiums"] = spaces.Tuple([space for space, _ in GYMNASIUMS])
SPACES["everything"] = spaces.Dict(
    {name: space for name, space in SPACES.items() if name not in ("number", "gymnasiums")}
)


class Samples(gymnasium.Env):
    """Observations drawn from a space by its name, and actions from another; infos say what was done."""

    def __init__(self, observation: str, action: str) -> None:
        self.observation_space, self.action_space = copy.deepcopy(SPACES[observation]), copy.deepcopy(SPACES[action])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        over = bool(self.np_random.random() < 0.2)
        return self.observation_space.sample(), self.np_random.normal(), over, False, {"did": repr(plain(action))}


class Workshop(gymnasium.Env):
    """Observations and actions of every kind at once, with choices that may not be taken; all of it is paid for."""

    observation_space = spaces.Dict(
        {
            "action_mask": spaces.Dict({"tool": spaces.MultiBinary(4)}),
            "bench": spaces.Box(0, 255, (6, 7, 3), np.uint8),
            "made": spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32)),
            "order": spaces.Text(6, charset="abcdef"),
            "state": spaces.Tuple([spaces.Discrete(5, start=-2), spaces.Box(-9, 9, (3,), np.float64)]),
        }
    )
    action_space = spaces.Dict(
        {"tool": spaces.Discrete(4), "force": spaces.Box(-1, 2, (2,), np.float32), "hold": spaces.MultiBinary(3)}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action) and self.legal[action["tool"]], action
        self.count += 1
        paid = float(action["tool"] - np.abs(action["force"] - 1).sum() + action["hold"].sum() + self.at)
        ended = bool(self.np_random.random() < 0.1)
        told = {"success": ended, "spent": {"steps": self.count, "note": "x"}} if ended or self.count >= 12 else {}
        return self._observe(), paid, ended, self.count >= 12 and not ended, told

    def _observe(self) -> Any:
        draw = self.np_random
        self.at = int(draw.integers(-2, 3))
        self.legal = draw.integers(0, 2, 4, dtype=np.int8)
        self.legal[draw.integers(4)] = 1
        return {
            "action_mask": {"tool": self.legal.copy()},
            "bench": draw.integers(0, 256, (6, 7, 3), dtype=np.uint8),
            "made": tuple(draw.uniform(-1, 1, (int(draw.integers(4)), 2)).astype(np.float32)),
            "order": "".join(draw.choice(list("abcdef"), int(draw.integers(1, 7)))),
            "state": (self.at, draw.uniform(-9, 9, 3)),
        }


class Spoil(gymnasium.Wrapper):
    """Gives, in its tenth step, a reward, an observation or a part of one that is no number."""

    def __init__(self, env: gymnasium.Env, part: str) -> None:
        super().__init__(env)
        self.part, self.count = part, 0

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        self.count += 1
        if self.count == 10:
            reward = math.nan if self.part == "reward" else reward
            observation = observation * np.float32(math.inf) if self.part == "observation" else observation
            if isinstance(observation, dict) and self.part in observation:
                observation = observation | {self.part: np.full_like(observation[self.part], math.nan)}
        return observation, reward, *rest


class KeepActions(gymnasium.Wrapper):
    """Remembers the very arrays it was given."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.kept: list[Any] = []

    def step(self, action: Any) -> Any:
        self.kept.append(action)
        return self.env.step(action)


class Faulty(gymnasium.Env):
    """Counts its steps until it does what it should not; only in an episode on seed `on`, or in all of them."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012, as Gymnasium has it

    def __init__(
        self, fault: str = "", at: int = 2, on: int | None = None, nap_s: float = 0.0, render_mode: str | None = None
    ) -> None:
        self.fault, self.at, self.on, self.nap_s, self.render_mode = fault, at, on, nap_s, render_mode
        self.gain = 1.0
        if fault == "make":
            raise RuntimeError("no such thing")
        if fault == "late":
            time.sleep(0.4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seed = seed
        self.count = 0
        return np.array([0, self.np_random.random()], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        time.sleep(self.nap_s)
        shape = (2,)
        info: dict[str, Any] = {}
        if self.fault and self.count == self.at and self.on in (None, self.seed):
            match self.fault:
                case "raise":
                    raise RuntimeError("the gearbox jammed")
                case "leave":
                    sys.exit("there is nothing to do here")
                case "exit":
                    print("about to leave", file=sys.stderr)
                    os._exit(3)
                case "segfault":
                    os.kill(os.getpid(), signal.SIGSEGV)
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    time.sleep(1000)
                case "pause":
                    time.sleep(0.6)
                case "shape":
                    shape = (3,)
        return np.full(shape, self.count, np.float32), self.gain, self.count >= 50, False, info

    def render(self) -> Any:
        return np.full((2, 2, 3), self.count, np.uint8)

    def double(self, value: int) -> int:
        return 2 * value

    def process(self) -> int:
        return os.getpid()

    def close(self) -> None:
        if self.fault == "close":
            raise RuntimeError("the door sticks")


class Shut(gymnasium.Env):
    """Cuts its episodes off where no action is legal any more; until then one of two is, and the other is no action."""

    observation_space = spaces.Dict({"place": spaces.Box(0, 9, (1,)), "action_mask": spaces.MultiBinary(2)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action == self.count % 2, action
        self.count += 1
        return self._observe(), 1.0, False, self.count == 5, {}

    def _observe(self) -> Any:
        legal = [0, 0] if self.count == 5 else [1 - self.count % 2, self.count % 2]
        return {"place": np.array([self.count], np.float32), "action_mask": np.array(legal, np.int8)}


class Scenes(gymnasium.Env):
    """Pictures of noise with a lamp in one of four corners, which pays those who name it."""

    observation_space = spaces.Box(0, 255, (44, 40, 3), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.corner)
        self.count += 1
        return self._observe(), reward, self.np_random.random() < 0.05, self.count == 30, {}

    def _observe(self) -> Any:
        self.corner = int(self.np_random.integers(4))
        picture = self.np_random.integers(0, 100, (44, 40, 3), np.uint8)
        below, right = divmod(self.corner, 2)
        picture[32 * below :, 28 * right :][:12, :12] = 255
        return picture


class Torn(gymnasium.Env):
    """Ends each episode with its third step; in one on seed `on`, its process dies as that is entered."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, on: int, owner: str, method: str) -> None:
        self.on, self.owner, self.method = on, owner, method

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seed, self.count = seed, 0
        return np.array([0, self.np_random.random()], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        if (self.seed, self.count) == (self.on, 3):
            owner = pkgutil.resolve_name(self.owner)
            enter = getattr(owner, self.method)

            def enter_and_die(*given: Any) -> None:
                enter(*given)
                os.kill(os.getpid(), signal.SIGKILL)

            setattr(owner, self.method, enter_and_die)
        return np.full(2, self.count, np.float32), 1.0, self.count == 3, False, {}


class Diary(gymnasium.Env):
    """Writes into a file when it is closed; that takes a while, and a step by action 1 does, which has an info."""

    observation_space = spaces.Box(0, 99, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, path: str, nap_s: float = 0.0) -> None:
        self.path, self.nap_s = path, nap_s

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self.nap_s * action)
        return np.zeros(1, np.float32), 1.0, False, False, {"action": action}

    def close(self) -> None:
        time.sleep(self.nap_s)
        with open(self.path, "a") as file:
            file.write("closed\n")


class Forever(Faulty):
    """Episodes that never end."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return np.full(2, self.count, np.float32), 1.0, False, False, {}


gymnasium.register("Parts-v0", "toy_envs:Parts")
gymnasium.register("Cell-v0", "toy_envs:Cell")
gymnasium.register("Scenes-v0", "toy_envs:Scenes")
gymnasium.register("Levers-v0", "toy_envs:Levers")


gymnasium.register("Samples-v0", "toy_envs:Samples")
gymnasium.register("Workshop-v0", "toy_envs:Workshop")
gymnasium.register("Faulty-v0", "toy_envs:Faulty")
gymnasium.register("Forever-v0", "toy_envs:Forever")
gymnasium.register("Shut-v0", "toy_envs:Shut")
