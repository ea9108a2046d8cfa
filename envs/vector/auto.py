"""`vec=auto`: benchmark the layouts of an environment on this machine and choose the fastest.

All candidates give identical results. An exact native version is always chosen if there is one.
"""

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Unpack

from gymnasium.vector.utils import concatenate, create_empty_array

from paddock.envs.errors import ConfigError
from paddock.envs.machine import usable_cores
from paddock.envs.native.library import built, describe
from paddock.envs.native.settings import NativeTask, native_task
from paddock.envs.spaces.legal import MASK, sample_legal
from paddock.envs.spaces.views import select
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import VectorEnv
from paddock.envs.vector.recipes import Form, MuJoCo, Multiprocess, Native, Serial, Vec

Layout = Serial | Multiprocess | Native | MuJoCo

ROUNDS, ROUND_S = 3, 0.2  # benchmark rounds, and seconds per layout and round
SIMPLER = 0.97  # relative speed at which serial is preferred to worker processes


@dataclass(frozen=True, kw_only=True)
class Auto(Vec):
    """Recipe whose layout is chosen later; until then environments step in this process."""

    restart: bool
    timeout_s: float
    seeded_slots = True

    def __post_init__(self) -> None:
        """Check the fields by building all layouts."""
        super().__post_init__()
        self.layouts()

    def check(self, spec: EnvSpec) -> None:
        """See `Vec.check`."""

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> VectorEnv:
        """Build the environments; see `Vec.make`."""
        return Serial(num_envs=self.num_envs).make(spec, **form)

    def layouts(self) -> list[Layout]:
        """Return serial, and multiprocess for each worker count that divides num_envs, up to two per core."""
        N = self.num_envs
        counts = [count for count in range(1, min(N, 2 * usable_cores()) + 1) if N % count == 0]
        faults: dict[str, Any] = {"batch_size": None, "restart": self.restart, "timeout_s": self.timeout_s}
        return [Serial(num_envs=N), *[Multiprocess(num_envs=N, workers=count, **faults) for count in counts]]

    def choose(self, spec: EnvSpec, elsewhere: bool, report: Callable[[str], None]) -> dict[str, Any]:
        """Return the fastest layout as a configuration section, and report the choice line by line.

        With `elsewhere`, environments step in the pool's workers, which already use all cores.
        """
        layouts = self.layouts()
        task = _find_native(spec)
        if task is not None and task.exact:
            try:
                layouts = self._native(spec, task)
            except ConfigError as error:
                report(f"vec=auto: no native version: {error}")
        elif task is not None and built():
            report("vec=auto: vec=native would be much faster, but its native physics gives different results")
        if (first := next((layout for layout in layouts if isinstance(layout, Multiprocess)), None)) is not None:
            try:
                first.check(spec)
            except ConfigError as error:
                report(f"vec=auto: no worker processes: {error}")
                layouts = [Serial(num_envs=self.num_envs)]
        layouts += self._mujoco(spec)
        if elsewhere:
            inline = [one for one in layouts if not isinstance(one, Multiprocess)]
            layouts = [one for one in inline if isinstance(one, Serial) or one.threads == 1]
        if len(layouts) == 1:
            remarks = ["worker processes already use all cores"] if elsewhere else []
            report(f"vec=auto: {describe_layout(layouts[0], *remarks)}")
            return as_section(layouts[0])
        report(f"vec=auto: timing {len(layouts)} layouts of {self.num_envs} environments")
        rates = time_layouts(spec, layouts)
        chosen = fastest(layouts, rates)
        for layout, rate in zip(layouts, rates, strict=True):
            report(f"  {describe_layout(layout):24} {rate:11,.0f} steps/s{'  <- chosen' if layout is chosen else ''}")
        return as_section(chosen)

    def _native(self, spec: EnvSpec, task: NativeTask) -> list[Layout]:
        """Return the native layouts, with one thread and with one per core (at most one per SIMD register)."""
        Native(num_envs=self.num_envs, threads=1).check(spec)
        registers = -(-self.num_envs // describe(task.name).lanes)
        counts = sorted({1, min(usable_cores(), registers)})
        return [Native(num_envs=self.num_envs, threads=count) for count in counts]

    def _mujoco(self, spec: EnvSpec) -> list[Layout]:
        """Return the batched layouts of a MuJoCo robot, with one thread and with one per core."""
        try:
            MuJoCo(num_envs=1, threads=1).check(spec)
        except ConfigError:
            return []
        counts = sorted({1, min(usable_cores(), self.num_envs)})
        return [MuJoCo(num_envs=self.num_envs, threads=count) for count in counts]


def _find_native(spec: EnvSpec) -> NativeTask | None:
    try:
        return native_task(spec)
    except ConfigError:
        return None


def time_layouts(spec: EnvSpec, layouts: Sequence[Layout]) -> list[float]:
    """Step each layout in turn with random legal actions; return the medians of environment steps/s."""
    with contextlib.ExitStack() as stack:
        venvs = [stack.enter_context(contextlib.closing(layout.make(spec, copy=False))) for layout in layouts]
        timed = [_Timed(venv) for venv in venvs]
        for one in timed:
            one.steps_per_s(ROUND_S / 4)  # until caches and workers are warm
        rounds = [[one.steps_per_s(ROUND_S) for one in timed] for _ in range(ROUNDS)]
    return [statistics.median(rates) for rates in zip(*rounds, strict=True)]


def fastest(layouts: Sequence[Layout], rates: Sequence[float]) -> Layout:
    """Return the fastest layout, preferring serial if it is about as fast."""
    best = max(rates)
    for layout, rate in zip(layouts, rates, strict=True):
        if isinstance(layout, Serial) and rate >= SIMPLER * best:
            return layout
    return layouts[rates.index(best)]


def describe_layout(layout: Layout, *remarks: str) -> str:
    """Return a layout's name, with remarks in parentheses, such as "native (1 thread)"."""
    if isinstance(layout, Serial):
        name = "serial"
    elif isinstance(layout, Native | MuJoCo):
        name = type(layout).__name__.lower()
        remarks = (f"{layout.threads} thread{'s' * (layout.threads != 1)}", *remarks)
    else:
        name, remarks = "multiprocess", (f"{layout.processes} worker{'s' * (layout.processes != 1)}", *remarks)
    return f"{name} ({'; '.join(remarks)})" if remarks else name


def as_section(layout: Layout) -> dict[str, Any]:
    """Return a layout as a configuration section."""
    return {"_target_": f"paddock.envs.vector.{type(layout).__name__}", **asdict(layout)}


class _Timed:
    """Vector environment with random actions, for benchmarks."""

    def __init__(self, venv: VectorEnv) -> None:
        """Start episodes and sample actions."""
        self._venv = venv
        self._obs, _ = venv.begin(0)
        for space in (venv.single_action_space, venv.action_space):
            space.seed(0)
        self._any = itertools.cycle([venv.action_space.sample() for _ in range(64)])

    def steps_per_s(self, seconds: float) -> float:
        """Return environment steps per second, measured for some seconds without the sampling of actions."""
        steps, took = 0, 0.0
        while took < seconds:
            actions = self._actions()
            begun = time.perf_counter()
            self._obs = self._venv.step(actions)[0]
            took += time.perf_counter() - begun
            steps += 1
        return steps * self._venv.num_envs / took

    def _actions(self) -> Any:
        if not isinstance(self._obs, Mapping) or MASK not in self._obs:
            return next(self._any)
        space, count = self._venv.single_action_space, self._venv.num_envs
        samples = [sample_legal(space, select(self._obs[MASK], k)) for k in range(count)]
        actions: Any = create_empty_array(space, count)
        return concatenate(space, samples, actions)
