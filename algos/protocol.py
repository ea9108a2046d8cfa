"""Interface of algorithms: the `Algorithm` protocol, and one protocol for each optional capability."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from paddock.algos.common.interrupts import Interrupted as Interrupted
from paddock.algos.common.interrupts import Unfinished as Unfinished
from paddock.algos.learning.policy import Policy as Policy
from paddock.algos.learning.policy import ReadsInputs as ReadsInputs
from paddock.algos.learning.policy import can_draw as can_draw

if TYPE_CHECKING:
    # Commands that only read run folders use these protocols without importing Gymnasium.
    from paddock.algos.evolution.archive import Archive
    from paddock.algos.evolution.descriptors import Descriptor
    from paddock.algos.evolution.niche import Niche
    from paddock.algos.networks.initial import Initial
    from paddock.algos.pool.protocol import Pool
    from paddock.envs.spec import EnvSpec

Metrics = Mapping[str, float]


class Algorithm(Protocol):
    """Resumable iterator of metrics; `state_dict()` is complete at every yield."""

    def plan(self) -> Generator[Metrics, None, None]:
        """Train; yield a row of metrics per iteration, with the keys `step` and `iteration`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `load_state_dict` restores, as arrays and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of an algorithm with the same settings; training resumes bit-identically."""

    def policy(self) -> Any:
        """Return the current policy, a `Policy`."""


@runtime_checkable
class LearnsInEnv(Protocol):
    """Algorithm whose policy acts in one environment, or in others with the same spaces."""

    env: EnvSpec


@runtime_checkable
class DeclaresPlacement(Protocol):
    """Algorithm that declares where its environments run; others are assumed to run them on the pool."""

    @property
    def plays_on_pool(self) -> bool:
        """True if environments run on the pool's workers instead of in this process."""


@runtime_checkable
class RecordsEvents(Protocol):
    """Algorithm that records events in addition to metrics."""

    def drain_events(self) -> Sequence[Mapping[str, Any]]:
        """Return the events since the last call; each is a row of `events.jsonl`."""


@runtime_checkable
class Describes(Protocol):
    """Algorithm that can summarize a run."""

    def describe(self) -> Mapping[str, str]:
        """Return the lines of `dry_run=true`: name -> text."""


@runtime_checkable
class Evaluates(Protocol):
    """Algorithm that evaluates its policy periodically.

    Rows with evaluations name the iteration of the evaluated policy as `eval/of_iteration`.
    """

    def evaluate_last(self) -> Sequence[Metrics]:
        """Return evaluations that no row has reported yet, the current policy's last; do not change the state."""


@runtime_checkable
class EvaluatesConcurrently(Protocol):
    """Algorithm that continues training during evaluations, so its state may lack the newest result."""

    def evaluated_policy(self) -> tuple[Any, int]:
        """Return the policy whose evaluation started last, and its iteration."""


@runtime_checkable
class WaitsForEvaluations(Protocol):
    """Algorithm whose rows wait for evaluations, and whose waits can be interrupted."""

    def interrupt(self) -> None:
        """Stop waiting for evaluations: `plan` yields the row without its evaluation as `Unfinished` and ends.

        Called by a signal handler in the thread that runs `plan`.

        Raises:
            Interrupted: aborts a wait in progress; `plan` catches it.
        """

    def complete(self, row: Metrics) -> Metrics:
        """Complete an unfinished row in the state at which it was yielded; return `Unfinished` if interrupted again."""


@runtime_checkable
class KeepsPolicies(Protocol):
    """Algorithm that keeps several policies, such as the best one."""

    policy_names: tuple[str, ...]  # arguments of `policy`; the first is the current one

    def policy(self, which: str = ...) -> Any:
        """Return the policy of that name."""

    def policy_iteration(self, which: str) -> int:
        """Return the iteration of a policy."""


@runtime_checkable
class TakesPolicy(Protocol):
    """Algorithm that can be initialized from another run's policy and can initialize others; see `init_from`."""

    def initial_policy(self) -> Initial:
        """Return the current policy for the initialization of another algorithm."""

    def start_from(self, initial: Initial) -> None:
        """Replace the randomly initialized policy by this one, before training.

        Raises:
            ConfigError: the networks differ; the message names the first difference.
        """


@runtime_checkable
class KeepsNiches(Protocol):
    """Algorithm that co-evolves environments and agents, such as POET; `policy(number)` is a niche's agent."""

    niches: dict[int, Niche]  # active niches by number, oldest first
    archive: dict[int, Niche]  # retired niches


@runtime_checkable
class KeepsElites(Protocol):
    """Algorithm that keeps an archive of elites (quality diversity); `policy(cell)` is the elite of a cell."""

    elites: Archive
    dimensions: Sequence[Descriptor]  # of the archive
    objective_offset: float  # return that counts as 0 in the QD score

    def replay(self, pool: Pool, episodes: int, seed: int) -> Archive:
        """Return an archive of the elites by their results in fresh episodes, played on a pool."""


@runtime_checkable
class TakesFamily(Protocol):
    """Class of algorithms that create environments of a family: it takes `family` instead of `env`."""

    takes_family: bool


@runtime_checkable
class KeepsFiles(Protocol):
    """Class of algorithms that keep files beside the checkpoints, such as replay: it takes `folder`.

    `folder` is a path in the run folder, created on first write, or None if the algorithm is only built for its policy.
    A state lists the files it needs under `attachments`, at any depth, by their paths in the folder; files that no
    checkpoint lists are deleted. Files with several hard links are shared with other members of a population and must
    be copied before they are written.
    """

    keeps_files: bool


@runtime_checkable
class ChecksDiskSpace(Algorithm, Protocol):
    """Algorithm that knows in advance how much disk space its files will need."""

    def check_disk_space(self, checkpoints: int, checkpoint_bytes: int, members: int = 1) -> None:
        """Check that the disk has space for the files still to be written.

        Args:
            checkpoints: number of checkpoints to be written beside the files.
            checkpoint_bytes: size of one checkpoint.
            members: number of population members that each need as much.

        Raises:
            PaddockError: the free space is insufficient.
        """


@runtime_checkable
class TrainsMembers(Protocol):
    """Class of algorithms that train several others: it takes `member`, which builds one of them."""

    trains_members: bool


@runtime_checkable
class KeepsVersions(Protocol):
    """Algorithm that keeps policies of earlier iterations, such as self-play opponents."""

    @property
    def versions(self) -> Sequence[int]:
        """Sorted iterations of the kept policies."""

    def version(self, iteration: int) -> Policy:
        """Return the policy of a kept iteration."""
