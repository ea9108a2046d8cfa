"""Recipes of vector environments, chosen by `vec=`: how many environments run, and where."""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict, Unpack

from gymnasium.vector import AutoresetMode

from paddock.envs.errors import ConfigError, provide, require
from paddock.envs.machine import usable_cores
from paddock.envs.making import JAX_LIBRARIES
from paddock.envs.mujoco.robots import find_robot
from paddock.envs.native.settings import native_task
from paddock.envs.ranges import Range, check_fields
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.adapters.atari import AtariVectorEnv
from paddock.envs.vector.adapters.batched import BatchedVectorEnv, make_batched
from paddock.envs.vector.adapters.envpool import EnvPoolVectorEnv
from paddock.envs.vector.contract import VectorEnv
from paddock.envs.vector.multiprocess.shared import check_platform
from paddock.envs.vector.multiprocess.vector import MultiprocessVectorEnv
from paddock.envs.vector.serial import SerialVectorEnv

NumEnvs = Annotated[int, Range("must be between 1 and 4096; 8 suits most", low=1, high=4096)]


class Form(TypedDict, total=False):
    """Optional arguments of `Vec.make`: the form of batches."""

    autoreset: AutoresetMode
    copy: bool
    packed: bool


@dataclass(frozen=True, kw_only=True)
class Vec(ABC):
    """Recipe of a vector environment: picklable, hashable, validated when it is built.

    Attributes:
        num_envs: N, environments in one vector.
        seeded_slots: chosen environments can be restarted on chosen seeds and stepped alone.
        groups: number of groups of consecutive environments that are stepped in turn (no field; set by `in_groups`).
    """

    num_envs: NumEnvs
    seeded_slots = False
    groups = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self, spec: EnvSpec) -> None:
        """Raise ConfigError if these environments cannot be run by this recipe."""
        replace(self, num_envs=1).make(spec).close()

    @abstractmethod
    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> VectorEnv:
        """Build the environments.

        Args:
            spec: recipe of each environment.
            form: `autoreset` (default SAME_STEP; with DISABLED the caller restarts ended episodes), `copy` (default
                True; otherwise batches of consecutive rows may be views, valid until the next `send`), `packed`
                (default False; observations are rows of `spec.observations` instead of Gymnasium's form; actions are
                accepted in both forms).
        """


def in_groups(vec: Vec, groups: int) -> Vec:
    """Return a recipe whose environments are stepped in `groups` equal groups; raise ConfigError if it is below 1."""
    require(groups >= 1, f"groups={groups} must be 1 or more; 1 is all environments at once")
    other = copy.copy(vec)
    object.__setattr__(other, "groups", groups)  # recipes are frozen
    return other


@dataclass(frozen=True, kw_only=True)
class Serial(Vec):
    """Environments stepped one after another in the calling process."""

    seeded_slots = True

    def check(self, spec: EnvSpec) -> None:
        """See `Vec.check`."""

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> SerialVectorEnv:
        """Build the environments; see `Vec.make`."""
        return SerialVectorEnv(spec, self.num_envs, **form)


@dataclass(frozen=True, kw_only=True)
class Multiprocess(Vec):
    """Environments in worker processes with shared memory."""

    workers: int | None
    batch_size: int | None
    restart: bool
    timeout_s: Annotated[float, Range("must be positive and at most 1e6; 120 suits most", above=0, high=1e6)]
    seeded_slots = True

    def __post_init__(self) -> None:
        super().__post_init__()
        N, W, B = self.num_envs, self.workers, self.batch_size
        require(W is None or 1 <= W <= N, f"workers={W} must be between 1 and num_envs={N}, or null for one per core")
        if W is not None:
            remedy = f"try workers={largest_divisor(N, W)} or num_envs={N // W * W}"
            require(N % W == 0, f"num_envs={N} is not a multiple of workers={W}; {remedy}")
        each = N // self.processes
        if B is not None:
            require(1 <= B <= N, f"batch_size={B} must be between 1 and num_envs={N}, or null for all of them")
            remedy = f"try {max(each, B - B % each)}"
            require(B % each == 0, f"batch_size={B} is not a multiple of a worker's {each} environments; {remedy}")

    @property
    def processes(self) -> int:
        """Return W, the number of worker processes."""
        return self.workers or largest_divisor(self.num_envs, usable_cores())

    def check(self, spec: EnvSpec) -> None:
        """See `Vec.check`."""
        check_platform()

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> MultiprocessVectorEnv:
        """Start the workers; see `Vec.make`."""
        layout: dict[str, Any] = {"batch_size": self.batch_size or self.num_envs, "groups": self.groups}
        faults: dict[str, Any] = {"restart": self.restart, "timeout_s": self.timeout_s}
        return MultiprocessVectorEnv(spec, self.num_envs, self.processes, **layout, **faults, **form)


@dataclass(frozen=True, kw_only=True)
class EnvPool(Vec):
    """Environments of EnvPool."""

    threads: Annotated[int, Range("must be at most 1024, or 0 for EnvPool's choice", low=0, high=1024)]

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> EnvPoolVectorEnv:
        """Prepare the pool; batches are always copies."""
        return EnvPoolVectorEnv(spec, self.num_envs, self.threads, **form)


@dataclass(frozen=True, kw_only=True)
class Atari(Vec):
    """Atari games in ALE's vector environment."""

    threads: Annotated[int, Range("must be at most 1024, or 0 for ALE's choice", low=0, high=1024)]
    keyed: bool

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> AtariVectorEnv:
        """Load the games; batches are always copies."""
        return AtariVectorEnv(spec, self.num_envs, self.threads, self.keyed, **form)


@dataclass(frozen=True, kw_only=True)
class Vector(Vec):
    """A class that is itself a vector environment."""

    target: str | None

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> BatchedVectorEnv:
        """Build the vector; without `copy`, observations are valid until the next step."""
        return make_batched(spec, self.num_envs, self.target, **form)


@dataclass(frozen=True, kw_only=True)
class Jax(Vec):
    """Environments of gymnax, Pgx and Brax, compiled by JAX."""

    num_envs: Annotated[int, Range("must be between 1 and 65536; 64 suits most", low=1, high=65536)]
    seeded_slots = True

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> VectorEnv:
        """Build the environments; see `Vec.make`."""
        names = ", ".join(f"env.id={library}:..." for library in JAX_LIBRARIES)
        what = f"vec=jax supports {names}, but env.id={spec.id} is none of them"
        require(spec.id.partition(":")[0] in JAX_LIBRARIES, f"{what}; use vec=serial or vec=multiprocess")
        spec.spaces  # noqa: B018, raises if a package or the environment is missing
        # Imported here: JAX takes a second to import, and other recipes do not need it.
        from paddock.envs.vector.adapters.jax_ import JaxVectorEnv

        return JaxVectorEnv(spec, self.num_envs, **form)


@dataclass(frozen=True, kw_only=True)
class Native(Vec):
    """Native environments (in C), for the tasks that have a native version.

    The walkers equal `paddock.envs.bipedal`; the classic control tasks differ from Gymnasium's in the last bits.
    """

    num_envs: Annotated[int, Range("must be between 1 and 65536; 64 suits most", low=1, high=65536)]
    threads: Annotated[int, Range("must be at most 1024, or 0 for one per core", low=0, high=1024)]
    seeded_slots = True

    def check(self, spec: EnvSpec) -> None:
        """See `Vec.check`."""
        what = f"env.metrics={list(spec.metrics)}: native environments have no infos"
        require(not spec.metrics, f"{what}; remove it, or use vec=serial")
        # Imported here: other recipes do not need the compiled library.
        from paddock.envs.native import library

        library.find_task(native_task(spec).name)  # raises if it is not built

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> VectorEnv:
        """Build the environments; see `Vec.make`."""
        from paddock.envs.native.vector import NativeVectorEnv

        return NativeVectorEnv(native_task(spec), self.num_envs, threads=self.threads, **form)


@dataclass(frozen=True, kw_only=True)
class MuJoCo(Vec):
    """Gymnasium's MuJoCo robots, version 5, stepped together by `mujoco.batch`; results equal those of `Serial`."""

    threads: Annotated[int, Range("must be at most 1024, or 0 for one per core", low=0, high=1024)]
    seeded_slots = True

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> VectorEnv:
        """Build the simulations; see `Vec.make`."""
        find_robot(spec)
        try:
            from paddock.envs.mujoco.vector import MuJoCoVectorEnv  # needs the package
        except ImportError as error:
            remedy = f"pip uninstall -y mujoco; {provide(error)}"
            raise ConfigError(f"vec=mujoco needs mujoco>=3.17,<4 ({error}); {remedy}") from error
        return MuJoCoVectorEnv(spec, self.num_envs, self.threads, **form)


def largest_divisor(number: int, limit: int) -> int:
    """Return the largest divisor of a number up to a limit."""
    return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)
