"""What on-policy algorithms are assembled from: settings, actors, a learner for each policy, evaluation, counters.

Nothing here decides how a rollout is learned from: an algorithm's own file has its plan and its update.
"""

import abc
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import gymnasium

from paddock.algos.common.interrupts import Unfinished
from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.common.timing import Clock
from paddock.algos.learning.async_evaluation import AsyncEvaluation
from paddock.algos.learning.onpolicy.normalize import Normalization
from paddock.algos.learning.onpolicy.normalized_learner import NormalizedLearner
from paddock.algos.learning.onpolicy.operators import Count
from paddock.algos.learning.policy import Policy
from paddock.algos.learning.rollouts.actors import WHERE, Actors, Mode, count_actors
from paddock.algos.learning.rollouts.collector import Fused, RolloutConfig, playable
from paddock.algos.learning.rollouts.rollout import Played, Rollout
from paddock.algos.learning.seated import seat_parts
from paddock.algos.learning.selfplay.opponents import Opponents
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.heads import Gaussian, make_head
from paddock.algos.networks.initial import Initial, InitialPolicies
from paddock.algos.networks.inputs import seated
from paddock.algos.networks.multiagent.divide import make_parts
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, UnitFloat, check_fields
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec


@dataclass(kw_only=True, eq=False)
class OnPolicy(abc.ABC):
    """Settings that mean the same in all of them (conf/algo/ppo.yaml explains each), parts, and state."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    rollouts: Mode
    num_actors: PositiveInt
    num_steps: PositiveInt
    fused: Fused
    learning_rate: PositiveFloat
    gamma: UnitFloat
    value_coef: NonNegativeFloat
    entropy_coef: NonNegativeFloat
    network: Mapping[str, Any] | None
    hidden: tuple[int, ...]
    seat_feature: bool
    policies: Mapping[str, Any] | None
    opponents: Mapping[str, Any] | None = None  # the same
    gaussian: Gaussian
    eval_every: PositiveInt
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    count: Count = field(init=False, default_factory=Count)

    counted: ClassVar[Mapping[str, str]] = {"iteration": "iteration", "step": "step", "train/episodes": "episodes"}
    policy_names = ("last", "best")

    def __post_init__(self) -> None:
        self._check()
        self.env = playable(seated(self.env, self.seat_feature), self.vec)
        self.vec.check(self.env.in_training())
        self.frozen = Opponents(self.opponents)
        self.parts = self.frozen.learning(make_parts(self.env, self.policies, self._architecture), self.env)
        single, several = self.parts.single, self.parts
        groups, staleness = self._groups, self._staleness
        config = RolloutConfig(
            self.env,
            self.vec,
            several.each[0].architecture,
            self.seed,
            self.num_steps,
            groups,
            self.fused,
            policies=None if single else several,
            device=self._device,
        )
        # Each of several policies is drawn by itself; the first one as if it were alone.
        self.learning = [self._drawn(k, 0 if k else None) for k in range(len(self.parts.each))]
        if self.frozen.starts_anew:
            count = self.learning[0].team.count
            require(count == 1, f"opponents.fresh: algo.learners={count} cannot begin anew together; set it to 1")
        self.frozen.begin(self.weights())
        meeting = self.frozen.add_to(config)
        acting = self.frozen.acting(self.weights())
        self.actors = Actors(meeting, self.pool, self.rollouts, self.num_actors, staleness, *acting)
        episodes = self.eval_episodes, self.eval_max_steps
        self.evaluation = AsyncEvaluation(config, self.pool, *episodes, *self.weights(), against=self.frozen)

    @property
    def iteration(self) -> int:
        """Updates so far."""
        return self.count.iteration

    @property
    def plays_on_pool(self) -> bool:
        """Whether the environments step on the pool's workers, and not in this process."""
        return self.rollouts == "actors"

    @property
    def learner(self) -> Any:
        """What learns the only policy, or the first of several."""
        return self.learning[0].learner

    @contextmanager
    def playing(self) -> Iterator[Generator[Sequence[Rollout], None, None]]:
        """Give the rollouts of all policies from here on; what was started for them ends with the context."""
        self.count.clock = Clock()  # what came before it is nobody's time
        with ExitStack() as stack:
            for one in self.learning:
                stack.enter_context(one.team.at_work())
            stack.enter_context(closing(self.evaluation))
            yield stack.enter_context(closing(self.actors.rollouts()))

    def weights(self) -> list[Weights]:
        """Return each policy as it is now."""
        return [one.weights(self.iteration) for one in self.learning]

    def publish(self) -> None:
        """Let actors play the weights as they are now."""
        self.frozen.observe(self.weights())
        for k in self.frozen.begins_anew(self.iteration):
            self.learning[k].begin_anew(self._drawn(k, self.iteration))
        self.actors.publish(self.iteration, lambda: self.frozen.acting(self.weights()))

    def finish(self, row: dict[str, float], played: Played) -> dict[str, float]:
        """Add to a row what evaluation and the clock have to tell, and start an evaluation where one is due."""
        clock = self.count.clock
        if self.iteration % self.eval_every == 0:
            row = self.complete(row)
        clock.lap("eval_wait")
        return row if isinstance(row, Unfinished) else row | self.actors.times(clock.read(), played)

    def complete(self, row: Mapping[str, float]) -> dict[str, float]:
        """See `WaitsForEvaluations`."""
        return self.evaluation.report(row, *self._newest)

    def interrupt(self) -> None:
        """See `WaitsForEvaluations`."""
        self.evaluation.interrupts.ask()

    def state_dict(self) -> dict[str, Any]:
        """Everything that `plan` goes on from: arrays and plain data; of several policies by their names."""
        by_name = self.parts.by_name
        learners = {"learner": by_name([one.learner.state_dict() for one in self.learning])}
        if self._normalizes:
            learners["normalization"] = by_name([one.normalization.state_dict() for one in self.learning])
        counters = {name: getattr(self.count, name) for name in self.counted.values()}
        return {
            **counters,
            **learners,
            "actors": self.actors.state_dict(),
            "evaluation": self.evaluation.state_dict(),
            **self.frozen.state_dict(),
            **self.parts.state_dict(self._sees_normalized),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; shapes have been compared with `state_dict()` by the checkpoint."""
        self.parts.check(state, self._sees_normalized)
        for name in self.counted.values():
            setattr(self.count, name, int(state[name]))
        for one, own in zip(self.learning, self.parts.in_order(state["learner"]), strict=True):
            one.learner.load_state_dict(own)
        if self._normalizes:
            for one, own in zip(self.learning, self.parts.in_order(state["normalization"]), strict=True):
                one.normalization.load_state_dict(own)
        self.frozen.load_state_dict(state)
        self.actors.load_state_dict(state["actors"], *self.frozen.acting(self.weights()))
        self.evaluation.load_state_dict(state["evaluation"])

    def evaluate_last(self) -> list[dict[str, float]]:
        """Return the evaluation under way, if there is one, and that of the newest weights."""
        return self.evaluation.finish_last(*self._newest)

    def policy_iteration(self, which: str) -> int:
        """Return the iteration that a policy is of."""
        return self.evaluation.best[0].version if which == "best" else self.iteration

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

    @property
    def versions(self) -> Sequence[int]:
        """See `KeepsVersions`: those that it plays against."""
        return self.frozen.versions

    def version(self, iteration: int) -> Policy:
        """See `KeepsVersions`."""
        return seat_parts(self.parts, self.env, self.frozen.version(iteration))

    def initial_policy(self) -> Initial:
        """See `TakesPolicy`: the last policy."""
        each = [one.initial(self.iteration) for one in self.learning]
        if self.parts.single:
            return each[0]
        main = self.parts.names[0] if self.frozen.is_league else None
        return InitialPolicies(dict(zip(self.parts.names, each, strict=True)), main)

    def start_from(self, initial: Initial) -> None:
        """See `TakesPolicy`: all but the values; one policy for all of several, or each from the one of its name."""
        for one in self.learning:
            one.start_from(initial.of_name(one.name))
        self.frozen.begin(self.weights())
        self.actors.begin(*self.frozen.acting(self.weights()))

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        actors = self.actors
        batch = actors.num_rows * self.num_steps
        seats = f" of {self.env.seats} agents" if self.env.seats > 1 else ""
        rows = "agents" if seats else "environments"
        return {
            "actors": f"{actors.num_actors} with {self.vec.num_envs} environments{seats} each, {WHERE[self.rollouts]}, "
            f"{actors.staleness} updates behind",
            "learners": self.learning[0].team.describe(),
            "rollout": f"{self.num_steps} steps x {actors.num_rows} {rows} = {batch:,}{self._passes(batch)}",
            **{f"policy {one.name}".strip(): self._describe(one) for one in self.learning},
            **self.frozen.describe(),
        }

    @property
    def _newest(self) -> Sequence[Weights]:
        """The weights that were published last, without those of opponents."""
        return self.actors.newest[: len(self.learning)]

    def _drawn(self, k: int, iteration: int | None) -> NormalizedLearner:
        """Return a policy as it is drawn by the run's seed alone, or by its number and an iteration too."""
        part, actors = self.parts.each[k], count_actors(self.rollouts, self.num_actors)
        seed = self.seed if iteration is None else episode_seed(self.seed, Stream.INITIAL, iteration, k)
        rows = self.vec.num_envs * actors * len(part.seats)
        normalization = self._normalization(rows, part.architecture)
        return NormalizedLearner(part.name, self._team(part.architecture, seed), normalization, self._clip)

    def _describe(self, one: NormalizedLearner) -> str:
        architecture = one.learner.architecture
        sizes = "-".join(map(str, architecture.hidden))
        memory = " LSTM" if architecture.lstm else ""
        made = f"{architecture.encoder} {sizes} {architecture.activation}{memory}"
        return f"{made}, {len(one.learner.parameters()):,} parameters, {architecture.head.describe()} actions"

    def _architecture(self, observations: Layout, actions: gymnasium.Space) -> Architecture:
        head = make_head(actions, gaussian=self.gaussian)
        return Architecture.for_spaces(
            observations, head, hidden=tuple(self.hidden), network=self.network, **self._network()
        )

    def _normalization(self, rows: int, architecture: Architecture) -> Normalization:
        return Normalization(rows, architecture.inputs, self.gamma, obs=False, rewards=False)

    @abc.abstractmethod
    def _network(self) -> dict[str, Any]:
        """What else `Architecture.for_spaces` takes."""

    @abc.abstractmethod
    def _team(self, architecture: Architecture, seed: int) -> Any:
        """What learns a policy, drawn from a seed; see `learner.SingleLearner`."""

    def _check(self) -> None:
        check_fields(self)

    def _passes(self, batch: int) -> str:
        """In how many passes so many steps are learned from, as a clause."""
        return ""

    @property
    def _normalizes(self) -> bool:
        """Whether what policies see and are paid may be normalized."""
        return False

    @property
    def _sees_normalized(self) -> bool:
        return any(one.normalization.mean.size > 0 for one in self.learning)

    @property
    def _clip(self) -> float:
        """Deviations that normalized observations are clipped to."""
        return 0.0

    @property
    def _staleness(self) -> int:
        return 0

    @property
    def _groups(self) -> int:
        return 1

    @property
    def _device(self) -> str:
        """What the first learner computes on."""
        return "cpu"

    def __getstate__(self) -> dict[str, Any]:
        # To other learners only the settings go, which are all that an update reads.
        parts = ("env", "vec", "pool", "count")
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in parts}
