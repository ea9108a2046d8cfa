"""Where a step of the native walker spends its time, and how near its solver is to what the arithmetic allows.

    python scripts/bench/limits/native_split.py [SECONDS]

The library is built once more, in a temporary folder, with counters between the parts of a step
(split.h). The arithmetic's limit is that of the vector instructions of the solver's 180 iterations alone:
those of a joint and of a contact are counted in the compiler's output, joints at a limit and contacts as they were, and
a small loop measures how many such instructions the processor does in a cycle at most (limit.c). Loads,
stores and waiting for results come on top of it.
"""

import argparse
import ctypes
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

import numpy as np  # noqa: E402

from paddock.envs.errors import require  # noqa: E402
from paddock.envs.native import library  # noqa: E402
from paddock.envs.spec import EnvSpec  # noqa: E402
from paddock.envs.vector import Native  # noqa: E402
from scripts.bench.harness import Report, positive_float, run_script  # noqa: E402

PARTS = {  # title, by the names of split.h, in its order
    "rest": "the rest",
    "solver": "solver",
    "positions": "position correction",
    "collision": "collision and impacts",
    "lidar": "lidar",
    "reset": "reset and ground",
}
COUNTS = ("islands", "limited_joints", "single_contacts", "double_contacts")
WIDTHS = {"baseline": (4, []), "avx2": (8, ["-mavx2"]), "avx512": (16, ["-mavx512f", "-mavx512dq", "-mavx512vl"])}
ITERATIONS, JOINTS, CHAINS = 180, 4, 12  # of the solver; of a walker; of limit.c
NUM_ENVS = 256
SOURCES = ROOT / "envs" / "native" / "src"
COUNTERS = f'-DPADDOCK_SPLIT="{Path(__file__).with_name("split.h")}"'
NO_ARITHMETIC = re.compile(
    r"v?(mov|broadcast|lea|k?mov|zeroupper|extract|insert|pextr|pinsr)|v?pbroadcast|call|ret|j|push"
)


class Split(ctypes.Structure):
    """`struct split` of split.h."""

    _fields_ = (
        ("cycles", ctypes.c_uint64 * (len(PARTS) + 1)),
        *((name, ctypes.c_uint64) for name in ("since", *COUNTS)),
        ("part", ctypes.c_int),
    )


def main() -> None:
    """Print what was measured, as lines and as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", nargs="?", type=positive_float, default=2.0, metavar="SECONDS", help="of play (2)")
    measured = measure("BipedalWalker-v3", parser.parse_args().seconds)
    print(render(measured))
    print(json.dumps(measured))


def measure(env_id: str, seconds: float) -> Report:
    """Shares of a step's parts with random actions on one thread, and the solver's share of the arithmetic's limit.

    Raises:
        ConfigError: there is no C compiler.
    """
    width = library.widest()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with built(folder, width) as c:
            split, steps = _play(c, env_id, seconds)
        cycles = dict(zip(PARTS, split.cycles, strict=False))
        counts = {name: getattr(split, name) for name in COUNTS}
        instructions, peak = _limit(folder, width)
    total = sum(cycles.values())
    report: Report = {
        "set": width,
        "env": env_id,
        "steps": steps,
        "shares": {part: count / total for part, count in cycles.items()},
        "cycles_per_step": total / steps,
        "contacts": (counts["single_contacts"] + counts["double_contacts"]) / counts["islands"],
        "limited_joints": counts["limited_joints"] / counts["islands"],
    }
    if instructions is not None:
        iteration = (
            (JOINTS * counts["islands"] - counts["limited_joints"]) * instructions["free_joint"]
            + counts["limited_joints"] * instructions["limited_joint"]
            + counts["single_contacts"] * instructions["single_contact"]
            + counts["double_contacts"] * instructions["double_contact"]
        )
        report["instructions"] = instructions
        report["peak_per_cycle"] = peak
        report["of_limit"] = ITERATIONS * iteration / peak / cycles["solver"]
    return report


def render(report: Report) -> str:
    """The report as a few lines."""
    shares = ", ".join(
        f"{PARTS[part]} {share:.0%}" for part, share in sorted(report["shares"].items(), key=lambda one: -one[1])
    )
    lines = [
        f"a step of {report['env']}, {report['set']}, one thread: {shares}",
        f"  {report['contacts']:.1f} contacts and {report['limited_joints']:.1f} joints at a limit in a register of "
        f"walkers; {report['cycles_per_step']:,.0f} cycles a walker's step, resets included",
    ]
    if "of_limit" in report:
        counts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in report["instructions"].items())
        lines += [
            f"  solver at {report['of_limit']:.0%} of the arithmetic's limit: {counts} vector instructions an "
            f"iteration; the processor does {report['peak_per_cycle']:.2f} a cycle at most"
        ]
    return "\n".join(lines)


@contextmanager
def built(folder: Path, width: str) -> Iterator[ctypes.CDLL]:
    """Have `library.load` find a library with the counters, for these instructions."""
    module = extension()
    compile_ = [_compiler(), *module["extra-compile-args"], COUNTERS, f"-I{SOURCES}", "-fPIC", "-c"]
    objects = [str(folder / Path(source).with_suffix(".o").name) for source in module["sources"]]
    running = [
        subprocess.Popen([*compile_, *_effort(source, width), str(ROOT / source), "-o", target])
        for source, target in zip(module["sources"], objects, strict=True)
    ]
    failed = [process.args for process in running if process.wait()]
    assert not failed, failed
    target = folder / f"_lanes{library.EXTENSION_SUFFIXES[0]}"
    subprocess.run([_compiler(), "-shared", *module["extra-link-args"], *objects, "-o", str(target)], check=True)
    before = library.FOLDER
    library.FOLDER = folder
    library.load.cache_clear()
    try:
        yield library.load()
    finally:
        library.FOLDER = before
        library.load.cache_clear()


def extension() -> Report:
    """What pyproject.toml says of the library."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    return next(one for one in table if one["name"] == "paddock.envs.native._lanes")


def _effort(source: str, width: str) -> list[str]:
    """What never runs need not be fast."""
    return ["-O0"] if Path(source).stem in WIDTHS.keys() - {width} else []


def _play(c: ctypes.CDLL, env_id: str, seconds: float) -> tuple[Split, int]:
    spec = EnvSpec(id=env_id, kwargs={}, wrappers=(), max_episode_steps=None, fresh=False)
    venv = Native(num_envs=NUM_ENVS, threads=1).make(spec)
    venv.reset(seed=0)
    venv.action_space.seed(0)
    actions = [venv.action_space.sample() for _ in range(16)]
    for batch in 4 * actions:
        venv.step(batch)
    counted = Split.in_dll(c, "split")
    since = counted.since
    ctypes.memset(ctypes.addressof(counted), 0, ctypes.sizeof(counted))
    counted.since = since
    steps, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        for batch in actions:
            venv.step(batch)
            steps += NUM_ENVS
    split = Split.from_buffer_copy(counted)
    venv.close()
    return split, steps


def _limit(folder: Path, width: str) -> tuple[dict[str, int] | None, float]:
    """Vector instructions of an iteration, part by part, and how many of them the processor does in a cycle at most."""
    lanes, flags = WIDTHS[width]
    compile_ = [_compiler(), *extension()["extra-compile-args"], *flags]
    compile_ += [
        COUNTERS,
        f"-DLANES={lanes}",
        f"-I{SOURCES}",
        str(Path(__file__).with_name("limit.c")),
    ]
    subprocess.run([*compile_, "-S", "-o", str(folder / "limit.s")], check=True)
    subprocess.run([*compile_, "-shared", "-fPIC", "-o", str(folder / "limit.so")], check=True)
    text = (folder / "limit.s").read_text()
    if "xmm" not in text:
        return None, 0.0  # another kind of processor, whose instructions we cannot tell apart
    names = ("free_joint", "limited_joint", "single_contact", "double_contact")
    limit = ctypes.CDLL(str(folder / "limit.so"))
    limit.measure_peak.restype = ctypes.c_uint64
    limit.measure_peak.argtypes = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
    rounds, sums = 1_000_000, np.zeros(CHAINS, np.float32)
    fewest = min(limit.measure_peak(rounds, 1.0, sums.ctypes.data) for _ in range(20))
    return {name: count_instructions(text, name) for name in names}, rounds * CHAINS / fewest


def count_instructions(text: str, function: str) -> int:
    """Vector instructions of a function of the compiler's output that do more than move numbers."""
    body = re.search(rf"^{function}:\n(.*?)^\s*\.size\s+{function},", text, re.MULTILINE | re.DOTALL)
    assert body is not None, function
    lines = [line.strip() for line in body[1].splitlines()]
    return sum(bool(re.search(r"%[xyz]mm", line)) and not NO_ARITHMETIC.match(line) for line in lines)


def _compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    require(found is not None, "the split of a step needs a C compiler (cc, gcc); install gcc")
    assert found is not None
    return found


if __name__ == "__main__":
    sys.exit(run_script(main))
