"""What all off-policy algorithms are assembled from: settings, actors, evaluation, counters.

Nothing here learns, or decides what follows what: an algorithm's own file has its networks, exploration and plan. What
those that learn from replay have beside it is in `from_replay`.
"""

import abc
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import gymnasium
import numpy as np

from algos.common.timing import Clock
from algos.learning.async_evaluation import AsyncEvaluation
from algos.learning.learner import Backend
from algos.learning.offpolicy.exploration import Exploration
from algos.learning.offpolicy.learners.learner import ExploresByParameters, OffPolicyLearner
from algos.learning.offpolicy.operators import Pace, count
from algos.learning.rollouts.actors import Actors, Mode, Staleness
from algos.learning.rollouts.collector import Fused, RolloutConfig, playable
from algos.learning.rollouts.rollout import Played, Rollout
from algos.networks.actor import ActorPolicy
from algos.networks.architecture import Architecture, Weights
from algos.networks.flat import Activation
from algos.networks.heads import Head
from algos.networks.initial import Initial, InitialPolicy
from algos.networks.inputs import seated, spaces_of
from algos.networks.support import Support
from algos.pool.protocol import Pool
from envs.errors import require
from envs.ranges import PositiveFloat, PositiveInt, Range, UnitFloat, check_fields
from envs.spec import EnvSpec
from envs.vector import Vec

WORLDS = "algo=dqn, sac, td3, ppo, a2c and es take worlds (docs/agents.md)"
POSITIVE_OR_NULL = Range("must be positive, or null", above=0)
ACTING = ("parameters", "targets", "actor_parameters", "target_actor")  # vectors of learners that begin with what acts


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
    seat_feature: bool = False  # runs that were made before agents learned from replay have none
    device: str
    backend: Backend
    precision: Literal["float32", "bfloat16"]
    threads: PositiveInt
    row_every: PositiveInt
    eval_every: PositiveInt
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    evaluations: int = field(init=False, default=0)
    action_space: gymnasium.Space[Any] = field(init=False)  # of an agent

    group: ClassVar[str]  # of the metrics of updates
    learns_values: ClassVar[bool] = False  # outputs of what acts are action values
    takes_worlds: ClassVar[bool] = False  # environments of several agents
    kept: ClassVar[tuple[str, ...]] = ("pace", "learner", "actors", "evaluation")  # what states are made of
    policy_names = ("last", "best")

    def __post_init__(self) -> None:
        check_fields(self)
        self.env = playable(seated(self.env, self.seat_feature), self.vec)
        several = f"algo={self.group} takes environments of one agent, and env.id={self.env.id} has {self.env.seats}"
        require(self.takes_worlds or self.env.seats == 1, f"{several}; {WORLDS}")
        self.vec.check(self.env.in_training())
        observations, self.action_space = spaces_of(self.env)
        architecture = Architecture.for_spaces(
            observations,
            self._head(),
            encoder=self.encoder,
            network=self.network,
            hidden=tuple(self.hidden),
            activation=self.activation,
            shared=self._shared,
            lstm=self._remembers,
            initial_log_std=0.0,
            support=self._support,
            layer_norm=self._normalizes_layers,
        )
        self.learner: OffPolicyLearner = self._learner(architecture)
        config = RolloutConfig(
            self.env,
            self.vec,
            architecture,
            self.seed,
            self.num_steps,
            self.groups,
            self.fused,
            self._exploration(self.num_rows),
            self._num_actors,
        )
        self.pace = self._pace(architecture)
        self.actors = Actors(config, self.pool, self.rollouts, self._num_actors, self.staleness, self._acting())
        first = self.learner.weights(0)
        self.evaluation = AsyncEvaluation(config, self.pool, self.eval_episodes, self.eval_max_steps, first)

    @property
    def num_rows(self) -> int:
        """Environments of all actors, or their agents."""
        return self.vec.num_envs * self._num_actors * self.env.seats

    @property
    def plays_on_pool(self) -> bool:
        """Whether the environments step on the pool's workers, and not in this process."""
        return self.rollouts == "actors"

    @property
    def told(self) -> tuple[str, ...]:
        """Names of what rows tell of updates."""
        return tuple(f"{self.group}/{name}" for name in self.learner.reported)

    @property
    def rate(self) -> float:
        """Adam's step size now."""
        progress = min(self.pace.step / self.anneal_steps, 1.0) if self.anneal_steps else 0.0
        return self.learning_rate * (1 - progress)

    @contextmanager
    def playing(self) -> Iterator[Generator[Rollout, None, None]]:
        """Give the rollouts from here on; what was started for them ends with the context."""
        self.pace.clock = Clock()  # what came before it is nobody's time
        with self.learner.at_work(), closing(self.evaluation), closing(self.actors.rollouts()) as rollouts:
            yield count((rollout for (rollout,) in rollouts), self.pace)

    def publish(self) -> None:
        """Let actors play the weights as they are now."""
        self.actors.publish(self._acting())

    def finish(self, row: dict[str, float], played: Played) -> dict[str, float]:
        """Add to a row what evaluation and the clock have to tell, and start an evaluation where one is due."""
        clock, due = self.pace.clock, self.pace.step // self.eval_every
        if due > self.evaluations:
            row = row | self.evaluation.finish()
            self.evaluation.start(self.learner.weights(self.pace.rollouts))
            self.evaluations = due
        clock.lap("eval_wait")
        return row | self.actors.times(clock.read(), played)

    def state_dict(self) -> dict[str, Any]:
        """Everything that `plan` goes on from: arrays, plain data, and the names of the replay's files."""
        parts = {name: getattr(self, name).state_dict() for name in self.kept}
        return {"evaluations": self.evaluations, **parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; shapes have been compared with `state_dict()` by the checkpoint."""
        self.evaluations = int(state["evaluations"])
        for name in self.kept:
            if name != "actors":
                getattr(self, name).load_state_dict(state[name])
        self.actors.load_state_dict(state["actors"], self._acting())

    def evaluate_last(self) -> list[dict[str, float]]:
        """Return the evaluation under way, if there is one, and that of the newest weights."""
        return self.evaluation.finish_last(self.learner.weights(self.pace.rollouts))

    def policy_iteration(self, which: str) -> int:
        """Return the iteration that a policy is of."""
        return self.evaluation.best[0].version if which == "best" else self.pace.rollouts

    def policy(self, which: Literal["last", "best"] = "last") -> ActorPolicy:
        """The policy: the last one, or the best that an evaluation met.

        Raises:
            ConfigError: the best is asked for before the first evaluation has ended.
        """
        met = which == "last" or self.evaluation.best_return > float("-inf")
        require(met, "which=best is not known before the first evaluation; use which=last")
        weights = self.learner.weights(self.pace.rollouts) if which == "last" else self.evaluation.best[0]
        return ActorPolicy(self.learner.architecture, weights)

    def initial_policy(self) -> InitialPolicy:
        """See `TakesPolicy`: the last policy."""
        return InitialPolicy.of(self.policy(), values=self.learns_values)

    def start_from(self, initial: Initial) -> None:
        """See `TakesPolicy`: what acts, and its target; critics stay as they were drawn."""
        drawn, state = self.learner.weights(0).parameters, self.learner.state_dict()
        parameters = initial.of_name("").into(self.learner.architecture, drawn, values=self.learns_values)
        for name in ACTING:
            vector = state.get(name, drawn[:0])  # some have none, or an empty one
            if vector.size:
                several = "this run learns several numbers for each action, which no policy has"
                several += "; set algo.quantiles=null and algo.atoms=null"
                require(np.array_equal(vector[: drawn.size], drawn), several)
                state[name] = np.concatenate([parameters, vector[drawn.size :]])
        self.learner.load_state_dict(state)
        self.actors.begin(self._acting())

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        architecture, actors = self.learner.architecture, self.actors
        where = {"inline": "in this process", "prefetch": "ahead in a thread", "actors": "on the pool"}[self.rollouts]
        sizes, memory = "-".join(map(str, architecture.hidden)), " LSTM" if architecture.lstm else ""
        return {
            "actors": f"{actors.num_actors} with {self.vec.num_envs} environments each, {where}, "
            f"{actors.staleness} rollouts behind",
            "policy": f"{architecture.encoder} {sizes} {self.activation}{memory}, "
            f"{architecture.head.describe()} actions",
        }

    @abc.abstractmethod
    def _head(self) -> Head:
        """What actions are."""

    @abc.abstractmethod
    def _learner(self, architecture: Architecture) -> OffPolicyLearner:
        """What learns."""

    @abc.abstractmethod
    def _exploration(self, num_envs: int) -> Exploration:
        """How so many environments explore."""

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
    def _num_actors(self) -> int:
        return self.num_actors if self.rollouts == "actors" else 1

    @abc.abstractmethod
    def _pace(self, architecture: Architecture) -> Pace:
        """What counts steps and updates."""

    def _acting(self) -> Weights:
        """The weights as actors play them: zeros in the warm-up, where noise alone acts."""
        learner, version = self.learner, self.pace.rollouts
        if isinstance(learner, ExploresByParameters):
            weights = learner.exploring(version)
        else:
            weights = learner.weights(version)
        if self.pace.step < self.pace.warmup:
            weights = Weights(
                weights.version, np.zeros_like(weights.parameters), weights.mean, weights.std, weights.clip
            )
        # Agents wait and die, so that rollouts differ in their actions.
        return weights if self.env.seats == 1 else replace(weights, steps=self.pace.step)
