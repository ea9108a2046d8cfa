"""What a step of worlds of several agents costs a seat: ours, PufferLib's emulation, SuperSuit's vectors.

All in one process and thread; times are the processor's, so that others who want it change them little.

    python scripts/bench/worlds.py [--quick] [--json PATH]

Eight worlds whose steps were made beforehand are stepped one after another, all of each side's vector included; and
two of MAgent's battles, of 162 agents each, where its package is. Peers that are not installed are left out:
`pip install --no-deps pufferlib-core supersuit tinyscaler magent2`.
"""

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

import numpy as np  # noqa: E402

from envs.spec import EnvSpec  # noqa: E402
from envs.vector import Serial  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    Report,
    command_line,
    describe_machine,
    finish,
    in_turns,
    list_versions,
    versions,
)

CROWD, BATTLE = "scripts.bench.loads.crowd:Crowd", "magent2.environments.battle_v4:parallel_env"
WORLDS = 8
AT_MOST_US = {16: 0.6, 128: 0.35}  # a seat and step, by the number of seats
FASTER = 1.5  # than PufferLib's, at least, in battles

Side = Callable[[], float]


def main(arguments: list[str] | None = None) -> int:
    """Measure all in turn, print medians and ratios; returns 1 if a target is missed, else 0."""
    options = command_line(__doc__, "three rounds, some seconds").parse_args(arguments)
    rounds = 3 if options.quick else 9
    crowds = {agents: measure(CROWD, {"agents": agents}, WORLDS, rounds, 40_000) for agents in (2, 16, 128)}
    report = {
        "machine": describe_machine(),
        "versions": versions("numpy", "gymnasium", "pettingzoo", "pufferlib-core", "supersuit", "magent2"),
        "crowds": crowds,
    }
    missed = [f"{agents} seats" for agents, most in AT_MOST_US.items() if crowds[agents]["paddock"] > most]
    try:
        importlib.import_module("magent2")
    except ImportError:
        pass
    else:
        report["battle"] = found = measure(BATTLE, {"max_cycles": 1000}, 2, rounds, 8_000)
        if "pufferlib" in found and found["pufferlib"] < FASTER * found["paddock"]:
            missed.append("battle")
    print(report["machine"], list_versions(report), "", sep="\n")
    print(render(report))
    print(f"targets missed: {', '.join(missed) or 'none'}")
    return finish(report | {"missed": missed}, options.json, not missed)


def measure(id: str, kwargs: dict[str, Any], worlds: int, rounds: int, seat_steps: int) -> Report:
    """Median microseconds a seat and step, of each side."""
    spec = EnvSpec(id=id, kwargs=kwargs, wrappers=(), max_episode_steps=None, fresh=False)
    steps = max(1, seat_steps // (spec.seats * worlds))
    actions = np.random.default_rng(0).integers(spec.roles[0].action_space.n, size=(64, worlds * spec.seats))  # type: ignore[attr-defined]
    venv = Serial(num_envs=worlds).make(spec, copy=False, packed=True)
    venv.begin(0)
    sides: dict[str, Side] = {"paddock": partial(step_us, venv.step, actions, steps)}
    for name, make in (("pufferlib", make_pufferlib), ("supersuit", make_supersuit)):
        try:
            step = make(spec, worlds)
        except ImportError:
            continue
        sides[name] = partial(step_us, step, actions, steps)
    for side in sides.values():
        side()
    return {name: statistics.median(found) for name, found in in_turns(rounds, sides).items()}


def make_pufferlib(spec: EnvSpec, worlds: int) -> Callable[[Any], Any]:
    """Return the step of PufferLib's serial vector."""
    emulation, vector = (importlib.import_module(f"pufferlib.{name}") for name in ("emulation", "vector"))

    def create(buf: Any = None, seed: int = 0) -> Any:
        return emulation.PettingZooPufferEnv(env=spec.make(), buf=buf, seed=seed)

    venv = vector.make(create, backend=vector.Serial, num_envs=worlds)
    venv.reset(0)
    step: Callable[[Any], Any] = venv.step
    return step


def make_supersuit(spec: EnvSpec, worlds: int) -> Callable[[Any], Any]:
    """Return the step of SuperSuit's vector of worlds, in this process."""
    supersuit = importlib.import_module("supersuit")
    world = spec.make() if spec.id != CROWD else as_pettingzoo(spec.make())
    one = supersuit.pettingzoo_env_to_vec_env_v1(supersuit.black_death_v3(world))
    venv = supersuit.concat_vec_envs_v1(one, worlds, num_cpus=0, base_class="gymnasium")
    venv.reset(seed=0)
    step: Callable[[Any], Any] = venv.step
    return step


def as_pettingzoo(world: Any) -> Any:
    """Return a world as one of PettingZoo's class, which SuperSuit asks for."""
    parallel = importlib.import_module("pettingzoo").ParallelEnv
    world.__class__ = type("Crowd", (type(world), parallel), {})
    return world


def step_us(step: Callable[[Any], Any], actions: Any, steps: int) -> float:
    """Microseconds of the processor a seat and step."""
    started = time.process_time()
    for k in range(steps):
        step(actions[k % len(actions)])
    return (time.process_time() - started) * 1e6 / steps / actions.shape[1]


def render(report: Report) -> str:
    """One line for each number of seats."""
    lines = [f"{'us a seat and step':24} {'paddock':>10} {'pufferlib':>10} {'supersuit':>10}"]
    found = {f"{agents} seats, {WORLDS} worlds": one for agents, one in report["crowds"].items()}
    found |= {"battle: 162 seats": report["battle"]} if "battle" in report else {}
    for name, one in found.items():
        figures = [
            f"{one[side]:10.2f}" if side in one else f"{'-':>10}" for side in ("paddock", "pufferlib", "supersuit")
        ]
        lines.append(f"{name:24} {' '.join(figures)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
