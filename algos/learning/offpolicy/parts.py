"""What all off-policy algorithms are assembled from: settings, actors, evaluation, counters.

Nothing here learns, or decides what follows what: an algorithm's own file has its networks, exploration and plan. What
those that learn from replay have beside it is in `from_replay`.
"""

import abc
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import gymnasium

from paddock.algos.common.interrupts import Unfinished
from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.learning.async_evaluation import AsyncEvaluation
from paddock.algos.learning.episode_metrics import tell_of
from paddock.algos.learning.learner import Backend
from paddock.algos.learning.offpolicy.exploration import Exploration
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.operators import count
from paddock.algos.learning.offpolicy.pace import Pace, Paces
from paddock.algos.learning.offpolicy.paced_learner import PacedLearner
from paddock.algos.learning.policy import Policy
from paddock.algos.learning.rollouts.actors import WHERE, Actors, Mode, Staleness, count_actors
from paddock.algos.learning.rollouts.collector import Fused, RolloutConfig, playable
from paddock.algos.learning.rollouts.rollout import Played, Rollout
from paddock.algos.learning.seated import seat_parts
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.flat import Activation
from paddock.algos.networks.heads import Head
from paddock.algos.networks.initial import Initial, InitialPolicies
from paddock.algos.networks.inputs import seated
from paddock.algos.networks.multiagent.divide import make_parts
from paddock.algos.networks.multiagent.parts import PolicyPart
from paddock.algos.networks.support import Support
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.ranges import PositiveFloat, PositiveInt, Range, UnitFloat, check_fields
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec
from paddock.envs.vector.contract import is_shared

POSITIVE_OR_NULL = Range("must be positive, or null", above=0)


@dataclass(kw_only=True, eq=False)
class OffPolicy(abc.ABC):
    """Settings that mean the same in all of them (conf/algo/dqn.yaml explains each), parts, and state."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    rollouts: Mode
    num_actors: PositiveInt
    staleness: Staleness
    num_steps: PositiveInt
    groups: int
    fused: Fused
    gamma: UnitFloat
    learning_rate: PositiveFloat
    anneal_steps: Annotated[int | None, POSITIVE_OR_NULL]
    adam_epsilon: PositiveFloat
    encoder: Literal["auto", "mlp", "cnn"]
    network: Mapping[str, Any] | None
    hidden: tuple[int, ...]
    activation: Activation
    seat_feature: bool
    policies: Mapping[str, Any] | None = None  # the same of several policies
    device: str
    backend: Backend
    precision: Literal["float32", "bfloat16"]
    threads: PositiveInt
    row_every: PositiveInt
    eval_every: PositiveInt
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    evaluations: int = field(init=False, default=0)

    group: ClassVar[str]  # of the metrics of updates
    learns_values: ClassVar[bool] = False  # outputs of what acts are action values
    policy_names = ("last", "best")

    def __post_init__(self) -> None:
        check_fields(self)
        self.env = playable(seated(self.env, self.seat_feature), self.vec)
        self.vec.check(self.env.in_training())
        self.parts = make_parts(self.env, self.policies, self._architecture)
        self.learning = [self._drawn(k, part) for k, part in enumerate(self.parts.each)]
        self.pace = Paces({one.name: one.pace for one in self.learning})
        config = RolloutConfig(
            self.env,
            self.vec,
            self.parts.each[0].architecture,
            self.seed,
            self.num_steps,
            self.groups,
            self.fused,
            tuple(self._exploration(self.rows_of(part)) for part in self.parts.each),
            self._num_actors,
            policies=None if self.parts.single else self.parts,
            device=self.device,
        )
        how = self.rollouts, self._num_actors, self.staleness
        self.actors = Actors(config, self.pool, *how, *self._acting(), sync_every=self._sync_every)
        self.evaluation = AsyncEvaluation(config, self.pool, self.eval_episodes, self.eval_max_steps, *self.weights())

    @property
    def learner(self) -> OffPolicyLearner:
        """What learns the only policy, or the first of several."""
        return self.learning[0].learner

    @property
    def num_rows(self) -> int:
        """Environments of all actors, or their agents."""
        return self.vec.num_envs * self._num_actors * self.env.seats

    def rows_of(self, part: PolicyPart) -> int:
        """Return how many of them a policy acts for."""
        return self.vec.num_envs * self._num_actors * len(part.seats)

    @property
    def plays_on_pool(self) -> bool:
        """Whether the environments step on the pool's workers, and not in this process."""
        return self.rollouts == "actors"

    @property
    def told(self) -> list[list[str]]:
        """Of each policy, names of what rows tell of its updates."""
        metrics = [{f"{self.group}/{name}": 0.0 for name in one.learner.reported} for one in self.learning]
        return [list(tell_of(one.name, told)) for one, told in zip(self.learning, metrics, strict=True)]

    @property
    def rate(self) -> float:
        """Adam's step size now."""
        progress = min(self.pace.step / self.anneal_steps, 1.0) if self.anneal_steps else 0.0
        return self.learning_rate * (1 - progress)

    @contextmanager
    def playing(self) -> Iterator[Generator[Sequence[Rollout], None, None]]:
        """Give the rollouts of all policies from here on; what was started for them ends with the context."""
        self.pace.start_clock()
        with ExitStack() as stack:
            for one in self.learning:
                stack.enter_context(one.learner.at_work())
            stack.enter_context(closing(self.evaluation))
            yield count(stack.enter_context(closing(self.actors.rollouts())), self.pace, self.parts.layouts)

    def weights(self) -> list[Weights]:
        """Return each policy as it is now."""
        return [one.weights() for one in self.learning]

    def publish(self) -> None:
        """Let actors play the weights as they are now."""
        self.actors.publish(self.pace.rollouts, self._acting)

    def finish(self, row: dict[str, float], played: Played) -> dict[str, float]:
        """Add to a row what evaluation and the clock have to tell, and start an evaluation where one is due."""
        clock = self.pace.clock
        if self.pace.step // self.eval_every > self.evaluations:
            row = self.complete(row)
        clock.lap("eval_wait")
        return row if isinstance(row, Unfinished) else row | self.actors.times(clock.read(), played)

    def complete(self, row: Mapping[str, float]) -> dict[str, float]:
        """See `WaitsForEvaluations`."""
        done = self.evaluation.report(row, *self.weights())
        if not isinstance(done, Unfinished):
            self.evaluations = self.pace.step // self.eval_every
        return done

    def interrupt(self) -> None:
        """See `WaitsForEvaluations`."""
        self.evaluation.interrupts.ask()

    def state_dict(self) -> dict[str, Any]:
        """Everything that `plan` goes on from: arrays and plain data; of several policies by their names."""
        by_name = self.parts.by_name
        return {
            "evaluations": self.evaluations,
            "pace": by_name([one.pace.state_dict() for one in self.learning]),
            "learner": by_name([one.learner.state_dict() for one in self.learning]),
            "actors": self.actors.state_dict(),
            "evaluation": self.evaluation.state_dict(),
            **self.parts.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; shapes have been compared with `state_dict()` by the checkpoint."""
        self.parts.check(state)
        self.evaluations = int(state["evaluations"])
        paces, learners = (self.parts.in_order(state[name]) for name in ("pace", "learner"))
        for one, pace, learner in zip(self.learning, paces, learners, strict=True):
            one.pace.load_state_dict(pace)
            one.learner.load_state_dict(learner)
        self.evaluation.load_state_dict(state["evaluation"])
        self.actors.load_state_dict(state["actors"], *self._acting())

    def evaluate_last(self) -> list[dict[str, float]]:
        """Return the evaluation under way, if there is one, and that of the newest weights."""
        return self.evaluation.finish_last(*self.weights())

    def policy_iteration(self, which: str) -> int:
        """Return the iteration that a policy is of."""
        return self.evaluation.best[0].version if which == "best" else self.pace.rollouts

    def policy(self, which: Literal["last", "best"] = "last") -> Policy:
        """The policy: the last one, or the best that an evaluation met; of several, all as one that plays all seats.

        Raises:
            ConfigError: the best is asked for before the first evaluation has ended.
        """
        met = which == "last" or self.evaluation.best_return > float("-inf")
        require(met, "which=best is not known before the first evaluation; use which=last")
        return seat_parts(self.parts, self.env, self.weights() if which == "last" else self.evaluation.best)

    def evaluated_policy(self) -> tuple[Policy, int]:
        """See `EvaluatesBeside`."""
        weights = self.evaluation.newest
        return seat_parts(self.parts, self.env, weights), weights[0].version

    def initial_policy(self) -> Initial:
        """See `TakesPolicy`: the last policy."""
        each = {one.name: one.initial() for one in self.learning}
        return each[""] if self.parts.single else InitialPolicies(each)

    def start_from(self, initial: Initial) -> None:
        """See `TakesPolicy`: what acts; one policy for all of several, or each from the one of its name."""
        for one in self.learning:
            one.start_from(initial.of_name(one.name))
        self.actors.begin(*self._acting())

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        actors = self.actors
        return {
            "actors": f"{actors.num_actors} with {self.vec.num_envs} environments each, {WHERE[self.rollouts]}, "
            f"{actors.staleness} rollouts behind{self._renewals}",
            **{f"policy {one.name}".strip(): self._describe(one.learner.architecture) for one in self.learning},
        }

    def _describe(self, architecture: Architecture) -> str:
        sizes, memory = "-".join(map(str, architecture.hidden)), " LSTM" if architecture.lstm else ""
        made = f"{architecture.encoder} {sizes} {self.activation}{memory}"
        return f"{made}, {architecture.head.describe()} actions"

    def _architecture(self, observations: Layout, actions: gymnasium.Space[Any]) -> Architecture:
        return Architecture.for_spaces(
            observations,
            self._head(actions),
            encoder=self.encoder,
            network=self.network,
            hidden=tuple(self.hidden),
            activation=self.activation,
            shared=self._shared,
            lstm=self._remembers,
            initial_log_std=0.0,
            support=self._support,
            layer_norm=self._normalizes_layers,
            values=self.learns_values,
        )

    def _drawn(self, k: int, part: PolicyPart) -> PacedLearner:
        """Return a policy that has learned nothing yet: the first one as if it were alone."""
        seed = episode_seed(self.seed, Stream.INITIAL, 0, k) if k else self.seed
        learner, pace = self._learner(part.architecture, seed), self._pace(part.architecture)
        return PacedLearner(part.name, seed, learner, pace, self.learns_values)

    @abc.abstractmethod
    def _head(self, actions: gymnasium.Space[Any]) -> Head:
        """What actions are, of agents of this action space."""

    @abc.abstractmethod
    def _learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        """What learns a policy, drawn from a seed."""

    @abc.abstractmethod
    def _exploration(self, rows: int) -> Exploration:
        """How a policy explores that acts in so many environments, or for so many agents."""

    @property
    def _shared(self) -> bool:
        return False

    @property
    def _support(self) -> Support | None:
        return None

    @property
    def _remembers(self) -> bool:
        return False

    @property
    def _normalizes_layers(self) -> bool:
        return False

    @property
    def _waits(self) -> bool:
        """Whether agents wait for their turns and die: in worlds, whoever has the other seats."""
        return self.env.seats > 1 or is_shared(self.vec)

    @property
    def _num_actors(self) -> int:
        return count_actors(self.rollouts, self.num_actors)

    @property
    def _sync_every(self) -> int:
        """Rollouts from one renewal of the weights that act to the next."""
        return 1

    @property
    def _renewals(self) -> str:
        return f", renewed every {self._sync_every} rollouts" if self._sync_every > 1 else ""

    @abc.abstractmethod
    def _pace(self, architecture: Architecture) -> Pace:
        """What counts a policy's steps and updates."""

    def _acting(self) -> list[Weights]:
        """Each policy as actors play it."""
        return [one.acting(counted=self._waits) for one in self.learning]
