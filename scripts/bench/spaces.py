"""Compare the conversion of structured observations to rows with PufferLib's emulation and Gymnasium's `flatten`.

    python scripts/bench/spaces.py [--quick] [--json PATH]

Pregenerated observations of eight environments are written into the rows of a batch, in interleaved rounds, and one
emulated environment that replays them is stepped. Then 4,096 rows are shuffled as in a learner, as opaque rows and leaf
by leaf, and viewed from torch.
PufferLib is skipped if it is not installed: `pip install --no-deps pufferlib-core`.
"""

import contextlib
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Python adds only the script's own folder

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gymnasium import Space, spaces  # noqa: E402
from gymnasium.spaces.utils import flatdim, flatten  # noqa: E402

import paddock  # noqa: E402
from paddock.envs.spaces.layout import Layout  # noqa: E402
from paddock.envs.spaces.views import flatten as arrays_of  # noqa: E402
from scripts.bench import harness  # noqa: E402
from scripts.bench.harness import Report, in_turns, seconds_of  # noqa: E402
from scripts.bench.loads.premade import SPACES as PREMADE  # noqa: E402
from scripts.bench.loads.premade import Premade  # noqa: E402

NUM_ENVS, ROWS, STEPS = 8, 4096, 2000
PUFFERLIB = {"Spaces": 0.65, "MiniGrid": 0.65, "nested": 0.65, "NetHack": 0.75}  # ours over theirs, at most
EMULATION = {"Spaces": 1.5, "MiniGrid": 1.5, "nested": 1.5, "NetHack": 1.0}  # our steps/s over theirs, at least
GYMNASIUM, GATHER = 1 / 6, 1 / 3  # ours over theirs, at most
LEAF_US = 5.0  # to view a leaf from torch, at most

Side = Callable[[], None]


def box(low: float, high: float, shape: tuple[int, ...], dtype: type[np.generic]) -> spaces.Box:
    """Return a Box with the same bounds for all elements."""
    return spaces.Box(low, high, shape, dtype)  # type: ignore[arg-type]


SPACES: dict[str, Space[Any]] = {
    **PREMADE,
    "nested": spaces.Dict(
        body=spaces.Dict(speed=box(-1, 1, (3,), np.float32), gear=spaces.Discrete(5)),
        goal=spaces.Tuple([box(0, 1, (2,), np.float32), spaces.MultiDiscrete([3, 4])]),
    ),
    # Observations of nle 1.3.0 without the screen descriptions.
    "NetHack": spaces.Dict(
        glyphs=box(0, 5976, (21, 79), np.int16),
        chars=box(0, 255, (21, 79), np.uint8),
        colors=box(0, 15, (21, 79), np.uint8),
        specials=box(0, 255, (21, 79), np.uint8),
        blstats=box(-(2**31), 2**31 - 1, (27,), np.int64),
        message=box(0, 255, (256,), np.uint8),
        inv_glyphs=box(0, 5976, (55,), np.int16),
        inv_strs=box(0, 255, (55, 80), np.uint8),
        inv_letters=box(0, 127, (55,), np.uint8),
        inv_oclasses=box(0, 18, (55,), np.uint8),
        tty_chars=box(0, 255, (24, 80), np.uint8),
        tty_colors=box(0, 31, (24, 80), np.int8),
        tty_cursor=box(0, 255, (2,), np.uint8),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Measure all sides in turn, and print medians and ratios; return 1 if a target is missed, else 0."""
    options = harness.command_line(__doc__, "three rounds, a few seconds").parse_args(arguments)
    rounds = 3 if options.quick else 15
    report = {
        "machine": harness.describe_machine(),
        "versions": harness.versions("numpy", "gymnasium", "torch", "pufferlib-core"),
        "spaces": {name: measure(name, space, rounds) for name, space in SPACES.items()},
        "emulation": {name: measure_emulation(space, rounds) for name, space in SPACES.items()},
        "learner": measure_learner(rounds),
    }
    missed = [claim for claim, reached in claims(report).items() if not reached]
    print(report["machine"], harness.list_versions(report), sep="\n")
    print(render(report))
    print(f"targets missed: {', '.join(missed) or 'none'}")
    return harness.finish(report | {"missed": missed}, options.json, not missed)


def measure(name: str, space: Space[Any], rounds: int) -> Report:
    """Return the median microseconds per observation of each side."""
    space.seed(1)
    observations = [space.sample() for _ in range(NUM_ENVS)]
    repeats = 100 if name == "NetHack" else 500
    sides = {
        "paddock": partial(write_all, repeats, Layout.of(space, {}, []), observations),
        "gymnasium": partial(flatten_all, max(1, repeats // 20), space, observations),
    }
    try:
        emulation = importlib.import_module("pufferlib.emulation")
    except ImportError:
        pass
    else:
        sides["pufferlib"] = partial(emulate_all, repeats, emulation, space, observations)
    found = in_turns(rounds, sides)
    return {side: statistics.median(times) for side, times in found.items()}


def write_all(repeats: int, layout: Layout, observations: list[Any]) -> float:
    """Return Paddock's microseconds per observation."""
    write = layout.writer(layout.zeros(NUM_ENVS))
    numbered = list(enumerate(observations))

    def side() -> None:
        for _ in range(repeats):
            for row, observation in numbered:
                write(row, observation)

    return _each_us(side, repeats)


def emulate_all(repeats: int, emulation: Any, space: Space[Any], observations: list[Any]) -> float:
    """Return PufferLib's microseconds per observation."""
    dtype = emulation.dtype_from_space(space)
    batch = np.zeros(NUM_ENVS, dtype)
    structs = list(zip([batch[row : row + 1].view(dtype) for row in range(NUM_ENVS)], observations, strict=True))
    emulate = emulation.emulate

    def side() -> None:
        for _ in range(repeats):
            for struct, observation in structs:
                emulate(struct, observation)

    return _each_us(side, repeats)


def flatten_all(repeats: int, space: Space[Any], observations: list[Any]) -> float:
    """Return Gymnasium's microseconds per observation."""
    rows = np.zeros((NUM_ENVS, flatdim(space)), np.float32)

    def side() -> None:
        for _ in range(repeats):
            for row, observation in enumerate(observations):
                flat: Any = flatten(space, observation)
                rows[row] = flat

    return _each_us(side, repeats)


def _each_us(side: Side, repeats: int) -> float:
    return 1e6 * seconds_of(side) / repeats / NUM_ENVS


def measure_emulation(space: Space[Any], rounds: int) -> Report:
    """Return the median steps/s of one environment without emulation and with ours, as bytes and features, and theirs."""
    envs: dict[str, Any] = {
        "none": Premade(space),
        "bytes": paddock.emulate(Premade(space), form="bytes"),
        "features": paddock.emulate(Premade(space)),
    }
    with contextlib.suppress(ImportError):
        envs["pufferlib"] = importlib.import_module("pufferlib.emulation").GymnasiumPufferEnv(env=Premade(space))
    found = in_turns(rounds, {side: partial(step_all, env) for side, env in envs.items()})
    return {side: STEPS / statistics.median(times) for side, times in found.items()}


def step_all(env: Any) -> float:
    """Return the processor seconds of STEPS steps, resets included."""
    action, over, started = np.int64(1), True, time.process_time()
    for _ in range(STEPS):
        if over:
            env.reset()
        _, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    return time.process_time() - started


def measure_learner(rounds: int) -> Report:
    """Return the median microseconds to shuffle rows, whole and leaf by leaf, and to view a leaf from torch."""
    layout = Layout.of(SPACES["Spaces"], {}, [])
    rows = layout.zeros(ROWS)
    leaves = [np.ascontiguousarray(view) for view in arrays_of(layout.fields(rows))]
    order = np.random.default_rng(0).permutation(ROWS)
    octets = torch.from_numpy(rows.view(np.uint8).reshape(ROWS, -1))
    strided = []
    for leaf in layout.leaves:
        kind = np.dtype(leaf.dtype)
        inner = np.empty(leaf.shape, kind).strides
        strides = [stride // kind.itemsize for stride in (layout.itemsize, *inner)]
        strided.append((getattr(torch, kind.name), (ROWS, *leaf.shape), strides, leaf.offset // kind.itemsize))

    def look() -> None:
        for dtype, shape, strides, offset in strided:
            octets.view(dtype).as_strided(shape, strides, offset)

    sides = {
        "rows": lambda: seconds_of(lambda: rows[order]),
        "leaf by leaf": lambda: seconds_of(lambda: [leaf[order] for leaf in leaves]),
        "look": lambda: seconds_of(look) / len(layout.leaves),
    }
    found = in_turns(rounds * 20, sides)
    return {side: 1e6 * statistics.median(times) for side, times in found.items()}


def claims(report: Report) -> dict[str, bool]:
    """Return every measured target, and whether it is reached."""
    found = {}
    for name, times in report["spaces"].items():
        found[f"{name} / Gymnasium"] = times["paddock"] <= GYMNASIUM * times["gymnasium"]
        if "pufferlib" in times:
            found[f"{name} / PufferLib"] = times["paddock"] <= PUFFERLIB[name] * times["pufferlib"]
    for name, rates in report["emulation"].items():
        if "pufferlib" in rates:
            found[f"emulation of {name}"] = rates["bytes"] >= EMULATION[name] * rates["pufferlib"]
    learner = report["learner"]
    found["gather"] = learner["rows"] <= GATHER * learner["leaf by leaf"]
    found["look"] = learner["look"] <= LEAF_US
    return found


def render(report: Report) -> str:
    """Format the tables."""
    lines = ["us/observation      paddock  pufferlib  gymnasium   paddock/pufferlib  paddock/gymnasium"]
    for name, times in report["spaces"].items():
        ours, theirs, flat = times["paddock"], times.get("pufferlib"), times["gymnasium"]
        puffer = f"{theirs:9.2f}" if theirs else "        -"
        ratio = f"{ours / theirs:9.2f}" if theirs else "        -"
        lines.append(f"{name:18}  {ours:7.2f}  {puffer}  {flat:9.2f}   {ratio}          {ours / flat:9.3f}")
    lines.append("emulated steps/s         none      bytes   features  pufferlib   bytes/pufferlib")
    for name, rates in report["emulation"].items():
        theirs = rates.get("pufferlib")
        puffer = f"{theirs:9,.0f}         {rates['bytes'] / theirs:9.2f}" if theirs else "        -                 -"
        lines.append(f"{name:18}  {rates['none']:9,.0f}  {rates['bytes']:9,.0f}  {rates['features']:9,.0f}  {puffer}")
    learner = report["learner"]
    ratio = f"{learner['rows'] / learner['leaf by leaf']:.2f}"
    lines.append(f"{ROWS} rows shuffled: {learner['rows']:.0f} us, leaf by leaf {learner['leaf by leaf']:.0f}: {ratio}")
    return "\n".join([*lines, f"view of a leaf from torch: {learner['look']:.1f} us"])


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
