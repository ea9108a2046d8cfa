"""What a step of worlds of several agents costs a seat: ours, PufferLib's emulation, SuperSuit's vectors.

All in one process and thread; times are the processor's, so that others who want it change them little.

    python scripts/bench/worlds.py [--quick] [--json PATH] [--cores] [--before TREE]

Eight worlds whose steps were made beforehand are stepped one after another, all of each side's vector included; and
two of MAgent's battles, of 162 agents each, where its package is. Peers that are not installed are left out:
`pip install --no-deps pufferlib-core supersuit tinyscaler magent2`. With --cores the battles are fought by two worker
processes too, by the clock, which wants a quiet machine. With --before tasks of one agent are stepped by this tree and
by another in turn, which shows what worlds cost those who have none: `git worktree add TREE ab5770a` is of before.
"""

import argparse
import importlib
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

import numpy as np  # noqa: E402

from paddock.envs.spec import EnvSpec  # noqa: E402
from paddock.envs.vector import Multiprocess, Serial  # noqa: E402
from scripts.bench.contenders.contest import Player  # noqa: E402
from scripts.bench.harness import (  # noqa: E402
    BUSY,
    Report,
    command_line,
    describe_machine,
    finish,
    in_turns,
    list_versions,
    run_script,
    versions,
)

CROWD, BATTLE = "scripts.bench.loads.crowd:Crowd", "magent2.environments.battle_v4:parallel_env"
WORLDS = 8
AT_MOST_US = {16: 0.6, 128: 0.35}  # a seat and step, by the number of seats
FASTER = 1.5  # than PufferLib's in one process, at least, in battles
SLOWER = 1.02  # than before there were worlds, at most, with one agent
TURN_STEPS = 256  # of 16 environments, in a turn of one agent's tasks
ONE_AGENT = "one_agent.py"  # in scripts/bench/peers/

Side = Callable[[], float]


def main(arguments: list[str] | None = None) -> int:
    """Measure all in turn, print medians and ratios; returns 1 if a target is missed, else 0."""
    parser = command_line(__doc__, "three rounds, some seconds")
    parser.add_argument("--cores", action="store_true", help="battles on two cores too")
    parser.add_argument("--before", type=other_tree, metavar="TREE", help="beside which one agent's tasks are stepped")
    options = parser.parse_args(arguments)
    rounds = 3 if options.quick else 9
    crowds = {agents: measure(CROWD, {"agents": agents}, WORLDS, rounds, 40_000) for agents in (2, 16, 128)}
    report: Report = {
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
        if options.cores:
            report["cores"] = found = measure_cores(BATTLE, {"max_cycles": 1000}, 2, rounds, 8_000)
            most = min(found["paddock"], found.get("pufferlib", float("inf")) / FASTER)
            missed += ["battle, two cores"] if found["paddock_2"] >= most else []
    if options.before is not None:
        report["before"] = compare_before(options.before, rounds, 40 if not options.quick else 4)
        missed += [id for id, one in report["before"].items() if one["ratio"] > SLOWER or not one["same"]]
    print(report["machine"], list_versions(report), "", sep="\n")
    print(render(report))
    print(f"targets missed: {', '.join(missed) or 'none'}")
    return finish(report | {"missed": missed}, options.json, not missed)


def other_tree(text: str) -> Path:
    """Read a tree from the command line: without envs/ in it, its side would import ours."""
    tree = Path(text).resolve()
    if not (tree / "envs" / "spec.py").exists():
        raise argparse.ArgumentTypeError(
            f"{text} is no tree of Paddock, which has envs/spec.py; git worktree makes one"
        )
    return tree


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


def measure_cores(id: str, kwargs: dict[str, Any], worlds: int, rounds: int, seat_steps: int) -> Report:
    """Median microseconds a seat and step by the clock, in this process and in as many workers as worlds.

    Each side's workers are started for its turn and end with it: PufferLib's spin while they wait, on cores that are
    another's turn.
    """
    if os.getloadavg()[0] > BUSY:
        print("others are at work here: who has most processes then gets most, so trust no figure of two cores")
    spec = EnvSpec(id=id, kwargs=kwargs, wrappers=(), max_episode_steps=None, fresh=False)
    steps = max(1, seat_steps // (spec.seats * worlds))
    actions = np.random.default_rng(0).integers(spec.roles[0].action_space.n, size=(64, worlds * spec.seats))  # type: ignore[attr-defined]
    many = Multiprocess(num_envs=worlds, workers=worlds, batch_size=None, restart=False, timeout_s=60.0)
    makes: dict[str, Callable[[], Any]] = {
        "paddock": partial(begun, Serial(num_envs=worlds), spec),
        f"paddock_{worlds}": partial(begun, many, spec),
    }
    if importlib.util.find_spec("pufferlib") is not None:
        makes |= {
            "pufferlib": partial(puffer_vector, spec, worlds, 1),
            f"pufferlib_{worlds}": partial(puffer_vector, spec, worlds, worlds),
        }
    sides = {name: partial(play_turn, make, actions, steps) for name, make in makes.items()}
    return {name: statistics.median(found) for name, found in in_turns(rounds, sides).items()}


def begun(vec: Serial | Multiprocess, spec: EnvSpec) -> Any:
    """Return a vector of worlds whose first episodes have begun."""
    venv = vec.make(spec, copy=False, packed=True)
    venv.begin(0)
    return venv


def play_turn(make: Callable[[], Any], actions: Any, steps: int) -> float:
    """Microseconds a seat and step by the clock of a vector made for it, after as many that are not counted."""
    venv = make()
    try:
        step_us(venv.step, actions, steps)
        return step_us(venv.step, actions, steps, time.perf_counter)
    finally:
        venv.close()


def compare_before(tree: Path, rounds: int, turns: int) -> Report:
    """Step one agent's tasks in this tree and that one: us a step, the ratio's median, whether the bytes are the same.

    Each round starts a process of each tree, so that no one place in memory decides, and a task is stepped by both in
    short turns, so that no change of the processor's pace does.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    digests: dict[str, set[str]] = {}
    for _ in range(rounds):
        with ExitStack() as stack:
            players = (Player(ONE_AGENT, environment={"PYTHONPATH": str(root)}) for root in (tree, ROOT))
            sides = [stack.enter_context(closing(player)) for player in players]
            for side in sides:
                for id, digest in side.ask().items():
                    digests.setdefault(id, set()).add(digest)
            for id in digests:
                before, now = (partial(play_one_agent, side, id) for side in sides)
                found.setdefault(id, []).append(play_turns(before, now, turns))
    return {
        id: {
            "before": statistics.median(before for before, _ in pairs),
            "now": statistics.median(before * ratio for before, ratio in pairs),
            "ratio": statistics.median(ratio for _, ratio in pairs),
            "same": len(digests[id]) == 1,
        }
        for id, pairs in found.items()
    }


def play_one_agent(side: Player, id: str) -> float:
    """Microseconds a step of a task."""
    us: float = side.ask(id=id, steps=TURN_STEPS)["us"]
    return us


def play_turns(before: Side, now: Side, turns: int) -> tuple[float, float]:
    """Return the first one's median time and the second one's median ratio to it; each begins every other turn."""
    pairs = []
    for k in range(turns):
        if k % 2:
            second, first = now(), before()
        else:
            first, second = before(), now()
        pairs.append((first, second))
    return statistics.median(first for first, _ in pairs), statistics.median(second / first for first, second in pairs)


def make_pufferlib(spec: EnvSpec, worlds: int) -> Callable[[Any], Any]:
    """Return the step of PufferLib's serial vector."""
    step: Callable[[Any], Any] = puffer_vector(spec, worlds, 1).step
    return step


def puffer_vector(spec: EnvSpec, worlds: int, workers: int) -> Any:
    """Return PufferLib's vector, of so many processes if there is more than one."""
    emulation, vector = (importlib.import_module(f"pufferlib.{name}") for name in ("emulation", "vector"))

    def create(buf: Any = None, seed: int = 0) -> Any:
        return emulation.PettingZooPufferEnv(env=spec.make(), buf=buf, seed=seed)

    more = {"backend": vector.Serial} if workers == 1 else {"backend": vector.Multiprocessing, "num_workers": workers}
    venv = vector.make(create, num_envs=worlds, **more)
    venv.reset(0)
    return venv


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


def step_us(
    step: Callable[[Any], Any], actions: Any, steps: int, now: Callable[[], float] = time.process_time
) -> float:
    """Microseconds a seat and step, of the processor unless told otherwise."""
    started = now()
    for k in range(steps):
        step(actions[k % len(actions)])
    return (now() - started) * 1e6 / steps / actions.shape[1]


def render(report: Report) -> str:
    """One line for each number of seats, for two cores, and for each task of one agent."""
    lines = [f"{'us a seat and step':24} {'paddock':>10} {'pufferlib':>10} {'supersuit':>10}"]
    found = {f"{agents} seats, {WORLDS} worlds": one for agents, one in report["crowds"].items()}
    found |= {"battle: 162 seats": report["battle"]} if "battle" in report else {}
    for name, one in found.items():
        figures = [
            f"{one[side]:10.2f}" if side in one else f"{'-':>10}" for side in ("paddock", "pufferlib", "supersuit")
        ]
        lines.append(f"{name:24} {' '.join(figures)}")
    if "cores" in report:
        each = ", ".join(f"{name} {us:.2f}" for name, us in report["cores"].items())
        lines.append(f"battle by the clock, _2 on two cores: {each}")
    for id, one in report.get("before", {}).items():
        bytes_are = "the same bytes" if one["same"] else "other bytes"
        lines.append(
            f"{id}: {one['before']:.2f} us a step before, {one['now']:.2f} now, {one['ratio']:.3f}; {bytes_are}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_script(main))
