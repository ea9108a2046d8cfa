"""How fast environments of others step, through the options of conf/env: steps in a second of one core.

    python scripts/bench/bindings.py [--quick] [--json PATH] [OPTION ...]

Random actions, restarts among them, in rounds in which all take turns. Seconds are of processor time, those of an
environment's own processes and threads too, so that what else runs on the machine counts little. An option whose
packages are not installed is left out.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

import psutil  # noqa: E402
import yaml  # noqa: E402

from paddock.envs.errors import ConfigError, nearest  # noqa: E402
from paddock.envs.spec import EnvSpec  # noqa: E402
from paddock.envs.vector import Atari, EnvPool, Serial, Vec, VectorEnv  # noqa: E402
from scripts.bench.harness import command_line, describe_machine, finish, in_turns, list_versions, run_script, versions  # noqa: E402

OPTIONS = (
    *("atari_nature", "atari_machado", "minigrid", "mujoco", "dmc", "crafter", "nethack", "minihack", "minatar"),
    *("procgen", "vizdoom"),
)
PACKAGES = (
    *("gymnasium", "numpy", "ale-py", "minigrid", "mujoco", "dm-control", "shimmy", "crafter", "nle", "minihack"),
    *("minatar", "envpool", "vizdoom"),
)
VECS: dict[str, Vec] = {
    "atari": Atari(num_envs=8, threads=1, keyed=True),
    "procgen": EnvPool(num_envs=16, batch_size=None, threads=1),
}


def option(text: str) -> str:
    """Read the name of what is timed from the command line, where it can be refused."""
    if text not in OPTIONS:
        raise argparse.ArgumentTypeError(f"{text} is not timed here; {nearest(text, OPTIONS)}")
    return text


def read_option(name: str) -> EnvSpec:
    """Return the recipe of an option of conf/env."""
    keys: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "env" / f"{name}.yaml").read_text())
    return EnvSpec(**{key: value for key, value in keys.items() if key not in ("defaults", "_target_")})


def sides(options: list[str]) -> dict[str, tuple[EnvSpec, Vec]]:
    """Return what is timed, by its name: each option in this process, some in what steps many at a time too."""
    found: dict[str, tuple[EnvSpec, Vec]] = {}
    for name in options:
        spec = read_option(name)
        found[name] = spec, Serial(num_envs=1)
        for prefix, vec in VECS.items():
            if name.startswith(prefix):
                found[f"{name} vec={prefix if prefix == 'atari' else 'envpool'}"] = spec, vec
    return found


def used_s() -> float:
    """Return the processor time of this process and of those that it has started, in seconds."""
    here = psutil.Process()
    times = [here.cpu_times(), *(child.cpu_times() for child in here.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def steps_per_s(venv: VectorEnv, seconds: float) -> float:
    """Step with random actions for so long by the clock; returns steps in a second of processor time."""
    actions = [venv.action_space.sample() for _ in range(64)]
    started, used, steps = time.perf_counter(), used_s(), 0
    while time.perf_counter() - started < seconds or used_s() - used < seconds / 10:
        venv.step(actions[steps % 64])
        steps += 1
    return steps * venv.num_envs / (used_s() - used)


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = command_line(__doc__, quick="one short round")
    parser.add_argument("options", nargs="*", type=option, metavar="OPTION", default=list(OPTIONS))
    arguments = parser.parse_args()
    rounds, seconds = (1, 0.1) if arguments.quick else (5, 1.0)
    with ExitStack() as stack:
        plays: dict[str, Callable[[], float]] = {}
        for name, (spec, vec) in sides(arguments.options).items():
            try:
                venv = stack.enter_context(closing(vec.make(replace(spec, training={}))))
            except ConfigError as error:
                print(f"{name}: {error}")
                continue
            venv.action_space.seed(0)
            venv.begin(0)
            plays[name] = lambda venv=venv: steps_per_s(venv, seconds)  # type: ignore[misc]
        rates = {name: statistics.median(runs) for name, runs in in_turns(rounds, plays).items()}
    report = {"machine": describe_machine(), "versions": versions(*PACKAGES), "steps_per_s": rates}
    print(report["machine"], list_versions(report), sep="\n")
    for name, rate in rates.items():
        print(f"{name:28} {rate:12,.0f} steps/s")
    return finish(report, arguments.json, reached=True)


if __name__ == "__main__":
    sys.exit(run_script(main))
