"""Settings, actors, evaluation and state shared by off-policy algorithms; `from_replay` adds what replay needs."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import gymnasium

from paddock.algos.common.interrupts import Unfinished
from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.common.timing import Clock
from paddock.algos.learning.async_evaluation import AsyncEvaluation
from paddock.algos.learning.learner import Backend
from paddock.algos.learning.offpolicy.exploration import Exploration
from paddock.algos.learning.offpolicy.learned_policy import LearnedPolicy
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.operators import TrainStep, count, report
from paddock.algos.learning.offpolicy.update_schedule import UpdateSchedule
from paddock.algos.learning.rollout_algorithm import RolloutAlgorithm
from paddock.algos.learning.rollouts.actors import MODE_NAMES, Actors, Staleness, check_thread_sharing, count_actors
from paddock.algos.learning.rollouts.config import RolloutConfig
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.divide import make_policy_group, prepare_env
from paddock.algos.multiagent.rows import agents_may_wait
from paddock.algos.networks.architecture import Architecture, EncoderChoice, Weights
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective
from paddock.algos.networks.flat import Activation
from paddock.algos.networks.heads import Head
from paddock.algos.networks.initial import Initial, InitialPolicies
from paddock.envs.ranges import PositiveFloat, PositiveInt, Range, check_fields
from paddock.envs.spaces.layout import Layout

POSITIVE_OR_NULL = Range("must be positive, or null", above=0)


@dataclass(kw_only=True, eq=False)
class OffPolicy(RolloutAlgorithm):
    """Base of off-policy algorithms, which call `assemble`; conf/algo/dqn.yaml documents the settings."""

    staleness: Staleness
    groups: int
    adam_epsilon: PositiveFloat
    encoder: EncoderChoice
    activation: Activation | None
    device: str
    backend: Backend
    precision: Literal["float32", "bfloat16"]
    threads: PositiveInt
    log_every_steps: PositiveInt
    eval_every_steps: PositiveInt

    evaluations: int = field(init=False, default=0)
    learning: list[LearnedPolicy] = field(init=False)

    group: ClassVar[str]  # prefix of update metrics

    def assemble(
        self,
        head: Callable[[gymnasium.Space[Any]], Head],
        exploration: Callable[[int], Exploration],
        make_learner: Callable[[Architecture, int], OffPolicyLearner],
        *,
        schedule: Callable[[Architecture], UpdateSchedule] = lambda architecture: UpdateSchedule(),
        sync_every: int = 1,
        learns_values: bool = False,
        **network: Any,
    ) -> None:
        """Build policies, actors and evaluation.

        `head` maps an action space to the head of the acting network, `exploration` a policy's number of environments
        to its exploration, `make_learner` (architecture, seed) to a learner, and `schedule` an architecture to its
        update schedule. Actors receive new weights after `sync_every` rollouts. With `learns_values`, the acting
        network outputs action values. `network` are further arguments of `Architecture.for_spaces`.
        """
        check_fields(self)
        self.check_schedule("learning_rate_schedule", self.learning_rate_schedule)

        def make_architecture(observations: Layout, actions: gymnasium.Space[Any]) -> Architecture:
            return Architecture.for_spaces(
                observations,
                head(actions),
                encoder=self.encoder,
                custom_encoder=self.custom_encoder,
                hidden_sizes=self.hidden_sizes,
                activation=self.activation,
                default_layers=self.default_layers,
                initial_log_std=0.0,
                values=learns_values,
                **{"shared": False, "lstm": False} | network,
            )

        self.env = prepare_env(self.env, self.vec, self.agent_id_feature)
        self.vec.check(self.env.in_training())
        actors = count_actors(self.rollouts, self.num_actors)
        self.policy_group = make_policy_group(self.env, self.policies, make_architecture)
        self.learning = []
        for k, spec in enumerate(self.policy_group.specs):
            seed = episode_seed(self.seed, Stream.INITIAL, 0, k) if k else self.seed
            rows, architecture = self.vec.num_envs * actors * spec.rows_per_env, spec.architecture
            own = make_learner(architecture, seed), schedule(architecture)
            self.learning.append(LearnedPolicy(spec.name, seed, rows, *own, learns_values))
        config = RolloutConfig(
            self.env,
            self.vec,
            self.policy_group.specs[0].architecture,
            self.seed,
            self.num_steps,
            self.groups,
            self.fused,
            tuple(exploration(one.rows) for one in self.learning),
            actors,
            policies=None if self.policy_group.single else self.policy_group,
            device=self.device,
        )
        how = self.rollouts, actors, self.staleness
        self.actors = Actors(config, self.pool, *how, *self._acting(), sync_every=sync_every)
        self.evaluation = AsyncEvaluation(config, self.pool, self.eval_episodes, self.eval_max_steps, *self.weights())

    @property
    def learner(self) -> OffPolicyLearner:
        """Learner of the only policy, or of the first of several."""
        return self.learning[0].learner

    @property
    def step(self) -> int:
        """Environment steps, or actions if environments have several rows."""
        return sum(one.schedule.step for one in self.learning)

    @property
    def num_rows(self) -> int:
        """Rows of a rollout of all actors: environments, or all their rows."""
        return sum(one.rows for one in self.learning)

    @property
    def waits(self) -> bool:
        """Whether rows may wait, or end before their environment does."""
        return agents_may_wait(self.env, self.vec)

    def rate(self) -> float:
        """Return the current learning rate."""
        return self.anneal(self.learning_rate, self.learning_rate_schedule, self.step)

    @contextmanager
    def playing(self) -> Iterator[Generator[Sequence[Rollout], None, None]]:
        """Yield the iterator of rollouts of all policies; leaving the context stops everything started for it."""
        clock = Clock()
        with ExitStack() as stack:
            for one in self.learning:
                one.clock = clock
                if one.replay is not None:
                    stack.enter_context(closing(one.replay))
                stack.enter_context(one.learner.training_context())
            stack.enter_context(closing(self.evaluation))
            yield count(stack.enter_context(closing(self.actors.rollouts())), self.learning)

    def weights(self) -> list[Weights]:
        """Return the current weights of each policy."""
        return [one.weights() for one in self.learning]

    def publish(self) -> None:
        """Publish the current weights to actors."""
        self.actors.publish(self.learning[0].schedule.rollouts, self._acting)

    def rows(self, steps: Generator[TrainStep, None, None]) -> Generator[dict[str, float], None, None]:
        """Yield a row of metrics every `log_every_steps` steps, with due evaluations and timings."""
        clock = self.learning[0].clock
        for row, played in report(steps, self.learning, self.log_every_steps, self.group, self.env.metrics):
            clock.lap("learn")
            if self.step // self.eval_every_steps > self.evaluations:
                row = self.complete(row)
            clock.lap("eval_wait")
            yield row if isinstance(row, Unfinished) else row | self.actors.times(clock.read(), played)
            clock.lap("loop")

    def complete(self, row: Mapping[str, float]) -> dict[str, float]:
        """See `WaitsForEvaluations`."""
        done = self.evaluation.report(row, *self.weights())
        if not isinstance(done, Unfinished):
            self.evaluations = self.step // self.eval_every_steps
        return done

    def state_dict(self) -> dict[str, Any]:
        """Return everything `plan` resumes from, as arrays and plain data keyed by policy where there are several."""
        each = [one.state_dict() for one in self.learning]
        return {
            "evaluations": self.evaluations,
            **{name: self.policy_group.by_name([own[name] for own in each]) for name in each[0]},
            "actors": self.actors.state_dict(),
            "evaluation": self.evaluation.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state whose shapes the checkpoint has compared with `state_dict()`."""
        self.evaluations = int(state["evaluations"])
        every = {
            name: self.policy_group.in_order(state[name]) for name in ("learner", "schedule", "replay") if name in state
        }
        for k, one in enumerate(self.learning):
            one.load_state_dict({name: values[k] for name, values in every.items()})
        self.evaluation.load_state_dict(state["evaluation"])
        self.actors.load_state_dict(state["actors"], *self._acting())

    def initial_policy(self) -> Initial:
        """See `TakesPolicy`: return the last policy."""
        each = {one.name: one.initial() for one in self.learning}
        return each[""] if self.policy_group.single else InitialPolicies(each)

    def start_from(self, initial: Initial) -> None:
        """See `TakesPolicy`: take the acting network, from the policy of the same name or from the only one."""
        for one in self.learning:
            one.start_from(initial.for_policy(one.name))
        self.actors.begin(*self._acting())

    def describe(self) -> dict[str, str]:
        """Return what a run would assemble, for `dry_run=true`."""
        actors, every = self.actors, self.actors.sync_every
        renewals = f", renewed every {every} rollouts" if every > 1 else ""
        return {
            "actors": f"{actors.num_actors} with {self.vec.num_envs} environments each, {MODE_NAMES[self.rollouts]}, "
            f"{actors.staleness} rollouts behind{renewals}",
            **{f"policy {one.name}".strip(): one.learner.architecture.describe() for one in self.learning},
        }

    def _acting(self) -> list[Weights]:
        return [one.acting(counted=self.waits) for one in self.learning]


def learn_in_torch(
    settings: OffPolicy,
    networks: Callable[..., Any],
    loss: Callable[..., Any],
    objective: QObjective | ActorCriticObjective,
    max_grad_norm: float | None = None,
) -> OffPolicyLearner:
    """Return a learner in torch; `networks` makes its networks, given `adam_epsilon`, `precision` and `device`."""
    # Importing torch takes a second, and networks trained in C do not need it.
    from paddock.algos.learning.offpolicy.learners.torch_learner import TorchOffPolicyLearner
    from paddock.algos.learning.torch_learner import check_device

    check_thread_sharing(settings.threads, settings.rollouts, settings.staleness, settings.pool)
    check_device(settings.device)
    return TorchOffPolicyLearner(
        partial(networks, adam_epsilon=settings.adam_epsilon, precision=settings.precision),
        loss,
        objective,
        max_grad_norm=max_grad_norm,
        threads=settings.threads,
        device=settings.device,
    )
