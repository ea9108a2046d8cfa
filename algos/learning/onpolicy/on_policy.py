"""Settings, counters, state and assembly shared by PPO and A2C, whose own files hold their plan and update."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import gymnasium

from paddock.algos.common.interrupts import Unfinished
from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.common.timing import Clock
from paddock.algos.learning.async_evaluation import AsyncEvaluation
from paddock.algos.learning.episode_metrics import prefix_metrics
from paddock.algos.learning.learner import check_rollout
from paddock.algos.learning.onpolicy.normalize import Normalization, NormalizedLearner
from paddock.algos.learning.policy import Policy
from paddock.algos.learning.rollout_algorithm import RolloutAlgorithm
from paddock.algos.learning.rollouts.actors import MODE_NAMES, Actors, count_actors
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.learning.rollouts.rollout import Rollout, RolloutStats, episode_metrics, world_metrics
from paddock.algos.multiagent.divide import make_policy_group, prepare_env
from paddock.algos.multiagent.joint_policy import make_joint_policy
from paddock.algos.multiagent.rows import check_transitions, describe_rows
from paddock.algos.multiagent.selfplay.opponent_pool import OpponentPool
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.heads import make_head
from paddock.algos.networks.initial import Initial, InitialPolicies
from paddock.envs.ranges import NonNegativeFloat, PositiveInt, check_fields
from paddock.envs.spaces.layout import Layout


@dataclass
class Counters:
    """Counters of training progress."""

    clock: Clock = field(init=False, default_factory=Clock)
    iteration: int = field(init=False, default=0)
    step: int = field(init=False, default=0)  # environment steps of all actors, without evaluation
    episodes: int = field(init=False, default=0)

    def add(self, rollouts: Sequence[Rollout]) -> None:
        """Count an iteration that learned from these rollouts."""
        self.iteration += 1
        self.step += sum(rollout.steps for rollout in rollouts)
        self.episodes += sum(len(rollout.returns) for rollout in rollouts)

    def state_dict(self) -> dict[str, int]:
        """Return the counters."""
        return {"iteration": self.iteration, "step": self.step, "episodes": self.episodes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counters."""
        self.iteration, self.step, self.episodes = (int(state[name]) for name in self.state_dict())


@dataclass(frozen=True)
class Assembly:
    """Algorithm-specific components that `OnPolicy.assemble` combines."""

    network: Mapping[str, Any]  # further arguments of `Architecture.for_spaces`
    make_team: Callable[[Architecture, int], Any]  # (architecture, seed) -> `SingleLearner` or `Learners`
    normalizes: Mapping[str, bool]  # `obs` and `rewards`
    observation_clip: float = 0.0  # bound of normalized observations, in standard deviations
    staleness: int = 0
    groups: int = 1
    device: str = "cpu"  # of actors in threads


@dataclass(kw_only=True, eq=False)
class OnPolicy(RolloutAlgorithm):
    """Base of PPO and A2C: shared settings (documented in conf/algo/ppo.yaml), components and state."""

    value_coef: NonNegativeFloat
    entropy_coef: NonNegativeFloat
    opponents: Mapping[str, Any] | None = None  # of self-play
    eval_every_iterations: PositiveInt
    continuous_distribution: str

    count: Counters = field(init=False, default_factory=Counters)
    learning: list[NormalizedLearner] = field(init=False)

    def assemble(self, assembly: Assembly) -> None:
        """Build the actors, learners and evaluation; raise ConfigError if settings are invalid."""
        check_fields(self)
        self.check_schedule("learning_rate_schedule", self.learning_rate_schedule)
        self._assembly = assembly
        self.env = prepare_env(self.env, self.vec, self.agent_id_feature)
        self.vec.check(self.env.in_training())
        self.opponent_pool = OpponentPool(self.opponents)
        self.policy_group = self.opponent_pool.learning_policies(
            make_policy_group(self.env, self.policies, self._architecture), self.env
        )
        config = RolloutConfig(
            self.env,
            self.vec,
            self.policy_group.specs[0].architecture,
            self.seed,
            self.num_steps,
            assembly.groups,
            self.fused,
            policies=None if self.policy_group.single else self.policy_group,
            device=assembly.device,
        )
        # Policies are initialized from independent seeds; the first one as if it were the only one.
        self.learning = [self._make_learner(k) for k in range(len(self.policy_group.specs))]
        self.opponent_pool.reset(self.weights())
        acting = self.opponent_pool.acting_weights(self.weights())
        how = self.rollouts, self.num_actors, assembly.staleness
        self.actors = Actors(self.opponent_pool.add_to(config), self.pool, *how, *acting)
        episodes = self.eval_episodes, self.eval_max_steps
        self.evaluation = AsyncEvaluation(config, self.pool, *episodes, *self.weights(), against=self.opponent_pool)

    @property
    def iteration(self) -> int:
        """Number of updates so far."""
        return self.count.iteration

    @property
    def learner(self) -> Any:
        """Learner of the only policy, or of the first of several."""
        return self.learning[0].learner

    @contextmanager
    def playing(self) -> Iterator[Generator[Sequence[Rollout], None, None]]:
        """Yield the iterator of rollouts of all policies; leaving the context stops everything started for it."""
        self.count.clock = Clock()  # exclude the time before
        with ExitStack() as stack:
            for one in self.learning:
                stack.enter_context(one.team.training_context())
            stack.enter_context(closing(self.evaluation))
            yield self._checked(stack.enter_context(closing(self.actors.rollouts())))

    def _checked(self, rollouts: Iterator[Sequence[Rollout]]) -> Generator[Sequence[Rollout], None, None]:
        for each in rollouts:
            self.count.clock.lap("wait")
            for rollout, layout in zip(each, self.policy_group.layouts, strict=True):
                check_rollout(rollout, layout)
            check_transitions(each, self.count.iteration)
            yield each

    def weights(self) -> list[Weights]:
        """Return the current weights of each policy."""
        return [one.weights(self.iteration) for one in self.learning]

    def publish(self) -> None:
        """Publish the current weights to actors."""
        self.opponent_pool.update(self.weights())
        self.actors.publish(self.iteration, lambda: self.opponent_pool.acting_weights(self.weights()))

    def end_iteration(self, rollouts: Sequence[Rollout], metrics: Mapping[str, float]) -> dict[str, float]:
        """Count an iteration, publish the new weights, start an evaluation if due, and return the row of metrics."""
        count, clock = self.count, self.count.clock
        count.add(rollouts)
        self.publish()
        played = RolloutStats.join(rollouts)
        row = {
            **{"iteration": count.iteration, "step": count.step, "train/episodes": count.episodes},
            **world_metrics(rollouts[0], count.iteration, sum(one.stray_reward for one in rollouts)),
            **episode_metrics(played, self.env.metrics),
        }
        for name, rollout in () if self.policy_group.single else zip(self.policy_group.names, rollouts, strict=True):
            row |= prefix_metrics(name, episode_metrics(rollout, self.env.metrics))
        row |= metrics
        clock.lap("learn")
        if self.iteration % self.eval_every_iterations == 0:
            row = self.complete(row)
        clock.lap("eval_wait")
        return row if isinstance(row, Unfinished) else row | self.actors.times(clock.read(), played)

    def complete(self, row: Mapping[str, float]) -> dict[str, float]:
        """See `WaitsForEvaluations`."""
        return self.evaluation.report(row, *self.weights())

    def state_dict(self) -> dict[str, Any]:
        """Return everything `plan` resumes from, as arrays and plain data keyed by policy where there are several."""
        by_name = self.policy_group.by_name
        return {
            **self.count.state_dict(),
            "learner": by_name([one.learner.state_dict() for one in self.learning]),
            "normalization": by_name([one.normalization.state_dict() for one in self.learning]),
            "actors": self.actors.state_dict(),
            "evaluation": self.evaluation.state_dict(),
            **self.opponent_pool.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state whose shapes the checkpoint has compared with `state_dict()`."""
        self.count.load_state_dict(state)
        for one, own in zip(self.learning, self.policy_group.in_order(state["learner"]), strict=True):
            one.learner.load_state_dict(own)
        for one, own in zip(self.learning, self.policy_group.in_order(state["normalization"]), strict=True):
            one.normalization.load_state_dict(own)
        self.opponent_pool.load_state_dict(state)
        self.actors.load_state_dict(state["actors"], *self.opponent_pool.acting_weights(self.weights()))
        self.evaluation.load_state_dict(state["evaluation"])

    @property
    def versions(self) -> Sequence[int]:
        """Frozen versions used as opponents; see `KeepsVersions`."""
        return self.opponent_pool.versions

    def version(self, iteration: int) -> Policy:
        """See `KeepsVersions`."""
        return make_joint_policy(self.policy_group, self.env, self.opponent_pool.version(iteration))

    def initial_policy(self) -> Initial:
        """See `TakesPolicy`: return the last policy."""
        each = [one.initial(self.iteration) for one in self.learning]
        if self.policy_group.single:
            return each[0]
        main = self.policy_group.names[0] if self.opponent_pool.is_league else None
        return InitialPolicies(dict(zip(self.policy_group.names, each, strict=True)), main)

    def start_from(self, initial: Initial) -> None:
        """See `TakesPolicy`: take all but the values, from the policy of the same name or from the only one."""
        for one in self.learning:
            one.start_from(initial.for_policy(one.name))
        self.opponent_pool.reset(self.weights())
        self.actors.begin(*self.opponent_pool.acting_weights(self.weights()))

    def describe(self) -> dict[str, str]:
        """Return what a run would assemble, for `dry_run=true`."""
        actors = self.actors
        batch = actors.num_rows * self.num_steps
        each, rows = describe_rows(self.policy_group)
        lag = f"{actors.staleness} updates behind" if actors.staleness else "no policy lag"
        return {
            "actors": f"{actors.num_actors} with {self.vec.num_envs} environments{each} each, "
            f"{MODE_NAMES[self.rollouts]}, {lag}",
            "learners": self.learning[0].team.describe(),
            "rollout": f"{self.num_steps} steps x {actors.num_rows} {rows} = {batch:,}",
            **{f"policy {one.name}".strip(): one.describe() for one in self.learning},
            **self.opponent_pool.describe(),
        }

    def _make_learner(self, k: int) -> NormalizedLearner:
        """Return a newly initialized policy, the first one seeded by the run's seed."""
        spec, actors = self.policy_group.specs[k], count_actors(self.rollouts, self.num_actors)
        seed = episode_seed(self.seed, Stream.INITIAL, 0, k) if k else self.seed
        rows = self.vec.num_envs * actors * spec.rows_per_env
        inputs, several = spec.architecture.inputs, self.policy_group.rows_per_env > 1
        normalization = Normalization(rows, inputs, self.gamma, **self._assembly.normalizes, aec=several)
        team = self._assembly.make_team(spec.architecture, seed)
        return NormalizedLearner(k, spec.name, team, normalization, self._assembly.observation_clip)

    def _architecture(self, observations: Layout, actions: gymnasium.Space) -> Architecture:
        head = make_head(actions, distribution=self.continuous_distribution)
        return Architecture.for_spaces(
            observations,
            head,
            hidden_sizes=self.hidden_sizes,
            default_layers=self.default_layers,
            custom_encoder=self.custom_encoder,
            **self._assembly.network,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return only the settings, which are all that an update in another learner's process reads."""
        settings = [item.name for item in fields(self) if item.init and item.name not in ("env", "vec", "pool")]
        return {name: getattr(self, name) for name in settings}
