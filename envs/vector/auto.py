"""`vec=auto`: times the layouts there are for this environment on this machine, and takes the fastest.

Only layouts that give the same numbers are candidates, so the choice is one of speed alone. Where native code gives
them, nothing else comes near it.
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
from paddock.envs.vector.recipes import Form, Multiprocess, Native, Serial, Vec

Layout = Serial | Multiprocess | Native

ROUNDS, ROUND_S = 3, 0.2  # in each of which every layout steps for so many seconds
SIMPLER = 0.97  # share of the best at which the process itself is preferred to worker processes


@dataclass(frozen=True, kw_only=True)
class Auto(Vec):
    """A layout to be chosen; environments step in this process as long as it has not been."""

    restart: bool
    timeout_s: float
    seeded_slots = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layouts()

    def check(self, spec: EnvSpec) -> None:
        """See `Vec.check`."""

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> VectorEnv:
        """Build the environments; see `Vec.make`."""
        return Serial(num_envs=self.num_envs).make(spec, **form)

    def layouts(self) -> list[Layout]:
        """Return this process, and every number of worker processes that divides num_envs, up to two a core."""
        N = self.num_envs
        counts = [count for count in range(1, min(N, 2 * usable_cores()) + 1) if N % count == 0]
        faults: dict[str, Any] = {"batch_size": None, "restart": self.restart, "timeout_s": self.timeout_s}
        return [Serial(num_envs=N), *[Multiprocess(num_envs=N, workers=count, **faults) for count in counts]]

    def choose(self, spec: EnvSpec, elsewhere: bool, report: Callable[[str], None]) -> dict[str, Any]:
        """Return the fastest layout here, as a section of the configuration; the table goes to `report`.

        Args:
            elsewhere: environments step in other processes, which take the cores as it is.
        """
        layouts = self.layouts()
        task = _find_native(spec)
        if task is not None and task.exact:
            try:
                layouts = self._native(spec, task)
            except ConfigError as error:
                report(f"vec=auto: not natively, for {error}")
        elif task is not None and built():
            report("vec=auto: vec=native would run this task's native physics: other numbers, much faster")
        if (first := next((layout for layout in layouts if isinstance(layout, Multiprocess)), None)) is not None:
            try:
                first.check(spec)
            except ConfigError as error:
                report(f"vec=auto: not in worker processes, for {error}")
                layouts = [Serial(num_envs=self.num_envs)]
        if elsewhere or len(layouts) == 1:
            why = ", as the pool's workers take the cores" if elsewhere else ""
            report(f"vec=auto: {place_of(layouts[0])}{why}")
            return as_section(layouts[0])
        report(f"vec=auto: timing {len(layouts)} layouts of {self.num_envs} environments")
        rates = time_layouts(spec, layouts)
        chosen = fastest(layouts, rates)
        for layout, rate in zip(layouts, rates, strict=True):
            report(f"  {place_of(layout):24} {rate:11,.0f} steps/s{'  <- taken' if layout is chosen else ''}")
        return as_section(chosen)

    def _native(self, spec: EnvSpec, task: NativeTask) -> list[Layout]:
        """Return the layouts in compiled code, on one thread and on as many as have work."""
        Native(num_envs=self.num_envs, threads=1).check(spec)
        registers = -(-self.num_envs // describe(task.name).lanes)
        counts = sorted({1, min(usable_cores(), registers)})
        return [Native(num_envs=self.num_envs, threads=count) for count in counts]


def _find_native(spec: EnvSpec) -> NativeTask | None:
    try:
        return native_task(spec)
    except ConfigError:
        return None


def time_layouts(spec: EnvSpec, layouts: Sequence[Layout]) -> list[float]:
    """Step each layout with random legal actions, in turn; return medians of environment steps/s."""
    with contextlib.ExitStack() as stack:
        venvs = [stack.enter_context(contextlib.closing(layout.make(spec, copy=False))) for layout in layouts]
        timed = [_Timed(venv) for venv in venvs]
        for one in timed:
            one.steps_per_s(ROUND_S / 4)  # until caches and workers are warm
        rounds = [[one.steps_per_s(ROUND_S) for one in timed] for _ in range(ROUNDS)]
    return [statistics.median(rates) for rates in zip(*rounds, strict=True)]


def fastest(layouts: Sequence[Layout], rates: Sequence[float]) -> Layout:
    """Return the fastest layout; this process itself where it is about as fast."""
    best = max(rates)
    for layout, rate in zip(layouts, rates, strict=True):
        if isinstance(layout, Serial) and rate >= SIMPLER * best:
            return layout
    return layouts[rates.index(best)]


def place_of(layout: Layout) -> str:
    """Return where a layout's environments step, in a word or three."""
    if isinstance(layout, Serial):
        return "serial"
    if isinstance(layout, Native):
        name, kind, count = "native", "thread", layout.threads
    else:
        name, kind, count = "multiprocess", "worker", layout.processes
    return f"{name}, {count} {kind}{'s' * (count != 1)}"


def as_section(layout: Layout) -> dict[str, Any]:
    """Return the layout as a section of the configuration."""
    return {"_target_": f"paddock.envs.vector.{type(layout).__name__}", **asdict(layout)}


class _Timed:
    """Environments that random actions step."""

    def __init__(self, venv: VectorEnv) -> None:
        self._venv = venv
        self._obs, _ = venv.begin(0)
        for space in (venv.single_action_space, venv.action_space):
            space.seed(0)
        self._any = itertools.cycle([venv.action_space.sample() for _ in range(64)])

    def steps_per_s(self, seconds: float) -> float:
        """Step for some seconds, in which actions are not drawn; return environment steps for each of them."""
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
        drawn = [sample_legal(space, select(self._obs[MASK], k)) for k in range(count)]
        actions: Any = create_empty_array(space, count)
        return concatenate(space, drawn, actions)
