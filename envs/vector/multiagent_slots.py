"""Consecutive multi-agent environments ("worlds") of a vector, stepped one after another in one process.

The row of a seat in a step:

    alive, stays alive  observation and reward
    alive, ends         flags as reported; final observation, return and length are kept; then zeros
    dead, stays dead    reward 0, no flags, zeros; its action is ignored, and a reward for it goes to the infos
    dead, appears       an observation: a life starts
    the episode ends    living agents without a flag are truncated; all seats restart in the same step
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from paddock.envs.making import RAISED, close_all
from paddock.envs.multiagent.env import ByAgent, Step, takes_turns
from paddock.envs.vector.buffers import buffer_of
from paddock.envs.vector.contract import EnvError, keyed_seed
from paddock.envs.vector.infos import add_info
from paddock.envs.vector.slots import NO_ENV, NON_NUMERIC, EnvSlots, Slots, check_numbers, raise_named
from paddock.envs.vector.storage import Layouts, RowIndex, numbers
from paddock.envs.vector.table import envs_of

STRAY = "stray_reward"  # info key: rewards of agents that are not alive


@dataclass
class StepResults:
    """Results of a step in the order of the batch, before they are written."""

    rewards: list[Any] = field(default_factory=list)  # of each row
    observations: list[Any] = field(default_factory=list)  # of rows that have one
    seen: list[Sequence[int]] = field(default_factory=list)  # their rows, environment by environment
    terminated: list[int] = field(default_factory=list)  # rows
    truncated: list[int] = field(default_factory=list)
    lives: list[tuple[int, list[bool], list[bool]]] = field(
        default_factory=list
    )  # (world, alive, acts) where they changed
    over: list[int] = field(default_factory=list)  # worlds
    infos: dict[str, Any] = field(default_factory=dict)


class MultiAgentSlots(EnvSlots):
    """Consecutive multi-agent environments."""

    def _prepare(self, layouts: Layouts) -> None:
        arrays, worlds = self._arrays, len(self.envs)
        assert arrays.lives is not None
        self._lives = arrays.lives
        self._seat = {agent: seat for seat, agent in enumerate(layouts.agents)}
        self._pick = itemgetter(*layouts.agents)
        self._given: list[int | None] = [None] * worlds  # seeds that `reset` gave
        self._since = [0] * worlds  # episodes begun since then
        self._turns = [False] * worlds  # some living agents may not act
        self._whole = [False] * worlds  # all agents live and act
        self._observation = buffer_of(layouts.observation_space, layouts.observation, arrays.observation)
        self._action = buffer_of(layouts.action_space, layouts.action, arrays.action)
        self._blank = np.zeros((), arrays.observation.dtype)

    def step(self, rows: RowIndex) -> dict[str, Any]:
        """See `EnvSlots.step`."""
        arrays, active_env, agents, seats = self._arrays, self._active_env, self._agents, len(self._agents)
        worlds = numbers(envs_of(rows, seats))
        actions = self._action.take_each(rows)
        results, size = StepResults(), len(actions)
        try:
            for i in worlds:
                active_env[0] = i
                k, at, base = i - self._first, len(results.rewards), i * seats
                env = self.envs[k]
                own = actions[at : at + seats]
                if self._whole[k]:
                    result: Step = env.step(dict(zip(agents, own, strict=True)))
                    if self._add_whole(env, k, result, results, base, size):
                        continue
                else:
                    acts = self._lives.acts[base : base + seats].tolist()
                    result = env.step({agents[s]: own[s] for s in range(seats) if acts[s]})
                self._add_lives(env, i, result, results, base, size)
        except RAISED as error:
            raise_named(error, self._spec, active_env[0], "step")
        try:
            arrays.reward[rows] = results.rewards
            fit = NON_NUMERIC.isdisjoint(map(type, results.rewards))
        except RAISED:
            fit = False
        if not fit:
            for row, reward in zip(numbers(rows), results.rewards, strict=True):
                check_numbers((reward,), self._spec, self._owner(row)[0])
        if len(results.observations) == size:
            self._write(rows, results.observations)
        elif results.observations:
            self._write(np.concatenate([np.array(part, np.intp) for part in results.seen]), results.observations)
        arrays.terminated[rows] = arrays.truncated[rows] = False
        ended = np.array(sorted({*results.terminated, *results.truncated}), np.intp)
        if len(ended):
            arrays.terminated[results.terminated] = arrays.truncated[results.truncated] = True
        fresh = []
        for i in results.over if self._same_step else ():
            fresh.append(self._reset(i, self._next_seed(i), {}))
        # Written last: if an environment fails above, no episode has ended.
        arrays.running_return[rows] += arrays.reward[rows]
        arrays.running_length[rows] += self._lives.acts[rows]
        if len(ended):
            arrays.final[ended] = arrays.observation[ended]
            arrays.end(ended)
            arrays.observation[ended] = self._blank
        self._lives.over[envs_of(rows, seats)] = False
        self._lives.over[results.over] = True
        for i, alive, acts in results.lives:
            self._set_agents(i, alive, acts)
        where = dict(zip(worlds, range(0, size, seats), strict=True)) if fresh else {}
        for i, (observations, infos) in zip(results.over, fresh, strict=False):
            arrays.episode[i] += 1
            self._begin(i, observations, infos, results.infos, where[i], size)
        active_env[0] = NO_ENV
        return results.infos

    def reset(self, rows: RowIndex, seeds: Sequence[int | None], options: dict[str, Any]) -> dict[str, Any]:
        """See `EnvSlots.reset`."""
        for i, seed in zip(numbers(envs_of(rows, len(self._agents))), seeds, strict=True):
            self._given[i - self._first], self._since[i - self._first] = seed, 0
        return super().reset(rows, seeds, options)

    def _add_whole(self, env: Any, k: int, result: Step, results: StepResults, base: int, size: int) -> bool:
        """Add a step in which all agents live and act, before and after; return False if they do not."""
        seen, paid, ended, cut, agent_infos = result
        seats = len(self._agents)
        if any(ended.values()) or any(cut.values()) or len(env.agents) != seats:
            return False
        if self._turns[k] and len(env.acting) != seats:
            return False
        try:
            observations, rewards = self._pick(seen), self._pick(paid)
        except KeyError:
            return False
        if any(agent_infos.values()):
            self._add_infos(agent_infos, results, len(results.rewards), size, base, ())
        results.observations += observations
        results.rewards += rewards
        results.seen.append(range(base, base + seats))
        return True

    def _add_lives(self, env: Any, i: int, result: Step, results: StepResults, base: int, size: int) -> None:
        """Add a step by the table above, seat by seat."""
        seen, paid, ended, cut, agent_infos = result
        at, agents = len(results.rewards), self._agents
        flagged = {agent for flags in (ended, cut) for agent, flag in flags.items() if flag}
        listed = self._listed(env, i)
        living = listed - flagged
        acting = self._acting(env, i - self._first, living)
        was = self._lives.alive[base : base + len(agents)].tolist()
        over = not living
        alive, acts, finals, observed = [], [], set(), list[int]()
        for row, agent in enumerate(agents, base):
            reward, here = paid.get(agent, 0.0), agent in living
            lived = was[row - base]
            if lived and not here:
                finals.add(agent)
                if agent in flagged:
                    if ended.get(agent, False):
                        results.terminated.append(row)
                    if cut.get(agent, False):
                        results.truncated.append(row)
                else:
                    results.truncated.append(row)
            born = not lived and here and agent in seen
            if agent in seen and (lived or born):
                results.observations.append(seen[agent])
                observed.append(row)
            if not lived and reward:
                add_info(results.infos, {STRAY: float(reward)}, at + row - base, size)
            results.rewards.append(reward if lived else 0.0)
            alive.append(born or (lived and here))
            acts.append(alive[-1] and agent in acting)
        self._add_infos(agent_infos, results, at, size, base, finals)
        results.seen.append(observed)
        results.lives.append((i, alive, acts))
        if over:
            results.over.append(i)

    def _add_infos(
        self, agent_infos: ByAgent, results: StepResults, at: int, size: int, base: int, finals: Any
    ) -> None:
        """Add the infos of the world whose first row is `base`, at the batch's rows from `at` on."""
        for agent, info in agent_infos.items():
            if info and agent in self._seat:
                seat = self._seat[agent]
                self._add_info(results.infos, info, at + seat, size, base + seat, final=agent in finals)

    def _listed(self, env: Any, i: int) -> set[Any]:
        """Return the agents that a world lists; raise EnvError if one is not in possible_agents."""
        listed = set(env.agents)
        if strange := listed - self._seat.keys():
            names = ", ".join(sorted(map(str, strange)))
            raise EnvError(f"world {i} ({self._spec.id}) has agents {names}, which are not in its possible_agents")
        return listed

    def _acting(self, env: Any, k: int, living: set[Any]) -> set[Any]:
        return living & set(env.acting) if self._turns[k] else living

    def _set_agents(self, i: int, alive: list[bool], acts: list[bool]) -> None:
        """Set the living and the acting agents of a world."""
        k, seats = i - self._first, len(self._agents)
        rows = slice(i * seats, (i + 1) * seats)
        self._lives.alive[rows], self._lives.acts[rows] = alive, acts
        self._whole[k] = all(acts)

    def _start(self, rows: RowIndex, seeds: Sequence[int | None], options: dict[str, Any]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        worlds = numbers(envs_of(rows, len(self._agents)))
        begun = [self._reset(i, seed, options) for i, seed in zip(worlds, seeds, strict=True)]
        arrays, seats = self._arrays, len(self._agents)
        arrays.running_return[rows] = 0
        arrays.running_length[rows] = 0
        arrays.observation[rows] = self._blank
        for at, (i, (observations, agent_infos)) in enumerate(zip(worlds, begun, strict=True)):
            self._begin(i, observations, agent_infos, infos, at * seats, len(worlds) * seats)
        self._active_env[0] = NO_ENV
        return infos

    def _begin(
        self, i: int, observations: ByAgent, agent_infos: ByAgent, infos: dict[str, Any], at: int, size: int
    ) -> None:
        env, k = self.envs[i - self._first], i - self._first
        self._turns[k] = takes_turns(env)
        living = self._listed(env, i) & observations.keys()
        acting = self._acting(env, k, living)
        base = i * len(self._agents)
        seats = [seat for seat, agent in enumerate(self._agents) if agent in living]
        if seats:
            self._write(base + np.array(seats), [observations[self._agents[seat]] for seat in seats])
        alive = [agent in living for agent in self._agents]
        self._set_agents(i, alive, [agent in acting for agent in self._agents])
        for agent, info in agent_infos.items():
            if agent in living:
                seat = self._seat[agent]
                self._add_info(infos, info, at + seat, size, base + seat)

    def _next_seed(self, i: int) -> int | None:
        """Return the seed of a world's next episode; None to continue its generator."""
        k = i - self._first
        if self._key is not None:
            return self._keyed(i, int(self._arrays.episode[i]) + 1)
        self._since[k] += 1
        given = self._given[k]
        return keyed_seed(given, i, self._since[k]) if self._spec.fresh and given is not None else None

    def _rebuild(self, k: int, seed: int | None) -> int | None:
        close_all([self.envs[k]], self._spec.id)
        self.envs[k] = self._spec.make()
        return seed

    def _owner(self, row: int) -> tuple[str, int]:
        world, seat = divmod(row, len(self._agents))
        return f"agent {self._agents[seat]} of world {world}", world


def slots_of(layouts: Layouts) -> type[Slots] | type[MultiAgentSlots]:
    """Return the class of slots for one agent or for several."""
    return Slots if layouts.seats == 1 else MultiAgentSlots
