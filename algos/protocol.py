"""What a run and the commands ask of an algorithm: one protocol, and one more for each thing that only some can."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from paddock.algos.common.interrupts import Interrupted as Interrupted
from paddock.algos.common.interrupts import Unfinished as Unfinished
from paddock.algos.learning.policy import Policy as Policy
from paddock.algos.learning.policy import ReadsInputs as ReadsInputs
from paddock.algos.learning.policy import can_draw as can_draw

if TYPE_CHECKING:
    # A command that only reads run folders asks for these protocols, and need not wait for Gymnasium.
    from paddock.algos.evolution.niche import Niche
    from paddock.algos.networks.initial import Initial
    from paddock.envs.spec import EnvSpec

Metrics = Mapping[str, float]


class Algorithm(Protocol):
    """A resumable iterator of metrics. At every yield `state_dict()` is complete."""

    def plan(self) -> Generator[Metrics, None, None]:
        """Learn, one row of metrics an iteration, with `step` and `iteration` in each."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that `load_state_dict` goes on from, as arrays and plain data."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another one of the same settings was, to the same bits."""
        ...

    def policy(self) -> Any:
        """Return the present policy; see `Policy`."""
        ...


@runtime_checkable
class LearnsInEnv(Protocol):
    """An algorithm whose policy is made for one environment, or for others of the same spaces."""

    env: EnvSpec


@runtime_checkable
class ChoosesPlace(Protocol):
    """An algorithm that says where its environments step; one that does not is taken to do so on the pool."""

    @property
    def plays_on_pool(self) -> bool:
        """Whether they step on the pool's workers, and not in this process."""
        ...


@runtime_checkable
class TellsEvents(Protocol):
    """An algorithm that has more to tell than numbers."""

    def drain_events(self) -> Sequence[Mapping[str, Any]]:
        """Return what happened since this was asked last; each event is a row of `events.jsonl`."""
        ...


@runtime_checkable
class Describes(Protocol):
    """An algorithm that says what a run would assemble."""

    def describe(self) -> Mapping[str, str]:
        """Return the lines of `dry_run=true`: name -> text."""
        ...


@runtime_checkable
class Evaluates(Protocol):
    """An algorithm that evaluates its policy now and then: it says what rows have not told when a run ends.

    Its rows with evaluations name the iteration of the policy that was played, as `eval/of_iteration`.
    """

    def evaluate_last(self) -> Sequence[Metrics]:
        """Return the evaluations that no row has reported, that of the present policy last; change no state.

        Raises:
            Interrupted: it `WaitsForEvaluations`, and is to wait no more.
        """
        ...


@runtime_checkable
class EvaluatesBeside(Protocol):
    """An algorithm that learns on while a policy is evaluated, of which its state may not know yet how good it is."""

    def evaluated_policy(self) -> tuple[Any, int]:
        """Return the policy whose evaluation began last, and the iteration that it is of."""
        ...


@runtime_checkable
class WaitsForEvaluations(Protocol):
    """An algorithm whose rows wait for evaluations, and which can be stopped while one does."""

    def interrupt(self) -> None:
        """Wait for no evaluation from now on: `plan` ends by yielding the row that lacks one, as `Unfinished`.

        Called by a signal's handler, in the thread that pulls `plan`.

        Raises:
            Interrupted: what is being waited for is given up; it is caught in `plan`.
        """
        ...

    def complete(self, row: Metrics) -> Metrics:
        """Return an unfinished row with what it lacked, at the state that it was yielded at; or `Unfinished` again."""
        ...


@runtime_checkable
class KeepsPolicies(Protocol):
    """An algorithm that keeps more than its present policy."""

    policy_names: tuple[str, ...]  # what `policy` may be asked for; the first is the present one

    def policy(self, which: str = ...) -> Any:
        """Return the policy of that name."""
        ...

    def policy_iteration(self, which: str) -> int:
        """Return the iteration that a policy is of."""
        ...


@runtime_checkable
class TakesPolicy(Protocol):
    """An algorithm that can begin with the policy of another run, and others with its own; see `init_from`."""

    def initial_policy(self) -> Initial:
        """Return the present policy, as another algorithm may begin with it."""
        ...

    def start_from(self, initial: Initial) -> None:
        """Begin with this policy in place of the one that was drawn; nothing has been learned yet.

        Raises:
            ConfigError: it is not of the same making; the first difference is named.
        """
        ...


@runtime_checkable
class KeepsNiches(Protocol):
    """An algorithm that co-evolves environments and agents, as POET does; `policy(number)` is the agent of a niche."""

    niches: dict[int, Niche]  # active ones by number, the oldest first
    archive: dict[int, Niche]  # retired ones


@runtime_checkable
class TakesFamily(Protocol):
    """A class of algorithms that make their environments of a family: it takes `family` in place of `env`."""

    takes_family: bool


@runtime_checkable
class KeepsFiles(Protocol):
    """A class of algorithms that keep files of their own beside the checkpoints, such as a replay: it takes `folder`.

    That is a path in the run's folder, which they make when they first write there, or None where one is built to be
    asked for its policy alone. A state names those of its files that it needs under `attachments`, at whatever depth,
    by their paths in the folder; once a file is named by no checkpoint it is deleted. A file with several names, by
    hard links, is another member's of a population, too: it is copied before it is written to.
    """

    keeps_files: bool


@runtime_checkable
class ChecksDiskSpace(Algorithm, Protocol):
    """An algorithm that knows, before it begins or goes on, what its files will take of the disk."""

    def check_disk_space(self, checkpoints: int, checkpoint_bytes: int, members: int = 1) -> None:
        """Compare what it has yet to take with what the disk has left.

        Args:
            checkpoints: that will be written beside its files.
            checkpoint_bytes: of one of the run's state as it is now.
            members: of a population of its like, each of which has yet to take as much.

        Raises:
            PaddockError: the disk has less.
        """
        ...


@runtime_checkable
class TrainsMembers(Protocol):
    """A class of algorithms that train several others: it takes `member`, which makes one of them."""

    trains_members: bool


@runtime_checkable
class KeepsVersions(Protocol):
    """An algorithm that keeps policies of earlier iterations, such as those that it plays against."""

    @property
    def versions(self) -> Sequence[int]:
        """The iterations that they are of, the oldest first."""
        ...

    def version(self, iteration: int) -> Policy:
        """Return the policy of one of them."""
        ...
