"""Players of stepped episodes: a population of networks, one policy for a batch of rows, or policies row by row."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.learning.episodes import Players
from paddock.algos.learning.policy import drawn_by
from paddock.algos.multiagent.rows import rows_per_env
from paddock.algos.networks.actor import ActorPolicy
from paddock.algos.networks.architecture import Weights
from paddock.algos.networks.flat import Population
from paddock.algos.networks.inputs import row_of
from paddock.algos.networks.recurrent import RecurrentPopulation
from paddock.envs.native.networks import Normalizer
from paddock.envs.spec import EnvSpec


class Members(Players):
    """Population with one network per row; `load(e)` returns the parameters [P] for episode e."""

    def __init__(
        self,
        population: Population | RecurrentPopulation,
        load: Callable[[int], NDArray[np.float32]],
        normalizer: Normalizer | None,
    ) -> None:
        self._inputs = inputs = population.inputs
        self.shape: tuple[int, ...] = (inputs.width,) if inputs.plain else ()
        self.dtype = np.dtype(np.float32) if inputs.plain else inputs.dtype
        self._population = population
        self._load = load
        self._normalizer = normalizer

    def start(self, row: int, episode: int) -> None:
        """See `Players.start`."""
        self._population.load(row, self._load(episode))

    def forget(self, row: int) -> None:
        """See `Players.forget`."""
        self._population.forget(row)

    def act(self, obs: NDArray[Any], acts: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """See `Players.act`."""
        numbers = self._inputs.numbers(obs)
        normalized = numbers if self._normalizer is None else self._normalizer(numbers)
        return self._population.act(normalized, self._inputs.legal(obs), acts)

    def numbers(self, obs: NDArray[Any]) -> NDArray[Any]:
        """See `Players.numbers`."""
        return self._inputs.numbers(obs)


class EveryRow(Players):
    """One policy acting on all rows as a batch."""

    def __init__(self, env: EnvSpec, policy: Any) -> None:
        row = row_of(env)
        self.shape, self.dtype = row.shape, row.base
        self._policy = policy
        self._state: Any = None

    def start(self, row: int, episode: int) -> None:
        """See `Players.start`."""
        self.forget(row)

    def forget(self, row: int) -> None:
        """See `Players.forget`."""
        if self._state is not None:
            self._state[row] = 0

    def act(self, obs: NDArray[Any], acts: NDArray[np.bool_] | None) -> NDArray[Any]:
        """See `Players.act`."""
        actions, _, state = self._policy.act(obs, self._state)
        state = None if state is None else state.copy()
        if state is not None and acts is not None:
            state[~acts] = 0 if self._state is None else self._state[~acts]
        self._state = state
        return actions


class RowByRow(Players):
    """Policies that act on one row each; `policy_of(episode, row)` returns the policy for an episode in a row."""

    def __init__(self, env: EnvSpec, policy_of: Callable[[int, int], Any], slots: int) -> None:
        row = row_of(env)
        self.shape, self.dtype = row.shape, row.base
        self._policy_of = policy_of
        self._policies: list[Any] = [None] * (slots * rows_per_env(env))
        self._states: list[Any] = [None] * len(self._policies)

    def start(self, row: int, episode: int) -> None:
        """See `Players.start`."""
        self._policies[row], self._states[row] = self._policy_of(episode, row), None

    def forget(self, row: int) -> None:
        """See `Players.forget`."""
        self._states[row] = None

    def act(self, obs: NDArray[Any], acts: NDArray[np.bool_] | None) -> NDArray[Any]:
        """See `Players.act`."""
        actions: list[Any] = [None] * len(self._policies)
        wanted = range(len(actions)) if acts is None else np.flatnonzero(acts).tolist()
        for row in wanted:
            actions[row], _, self._states[row] = self._policies[row].act(obs[row : row + 1], self._states[row])
        return np.concatenate([actions[wanted[0]] if action is None else action for action in actions])


class ActorRows(RowByRow):
    """Actors of one architecture, one per row; `load(e)` returns the weights for episode e."""

    def __init__(self, env: EnvSpec, actors: Sequence[ActorPolicy], load: Callable[[int], Weights]) -> None:
        super().__init__(env, self._loaded, len(actors) // rows_per_env(env))
        self._actors, self._load = actors, load

    def numbers(self, obs: NDArray[Any]) -> NDArray[Any]:
        """See `Players.numbers`."""
        return self._actors[0].inputs.numbers(obs)

    def _loaded(self, episode: int, row: int) -> ActorPolicy:
        self._actors[row].load(self._load(episode))
        return self._actors[row]


def drawn_in_row(policy: Any, seed: int, row: int) -> Any:
    """Return the stochastic version of a policy, keyed by an episode's seed and row, if there is one."""
    return drawn_by(policy, keyed_generator(seed, Stream.ACTION, 0, row))
