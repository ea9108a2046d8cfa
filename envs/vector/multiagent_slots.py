"""Some of a vector's worlds, stepped one after another in the process that built them: who lives, acts and ends.

A seat's row over a step of its world:

    lived, lives on    observation and reward
    lived, ended       flags as reported; its last observation is kept as final, with its life's return and length; then zeros
    dead, still dead   reward 0, no flag, zeros; its action is ignored, and a reward for it goes to infos
    dead, born         an observation: a life begins
    the world is over  agents that live without a flag are truncated; all seats restart in the same step
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

STRAY = "stray_reward"  # of infos: rewards of agents that do not live


@dataclass
class Given:
    """Results of a step, row by row in the order of the batch, before they are entered."""

    rewards: list[Any] = field(default_factory=list)  # of each row
    observations: list[Any] = field(default_factory=list)  # of those that have one
    seen: list[Sequence[int]] = field(default_factory=list)  # whose they are, part by part
    terminated: list[int] = field(default_factory=list)  # rows
    truncated: list[int] = field(default_factory=list)
    lives: list[tuple[int, list[bool], list[bool]]] = field(default_factory=list)  # worlds where that changed
    over: list[int] = field(default_factory=list)  # worlds
    infos: dict[str, Any] = field(default_factory=dict)


class MultiAgentSlots(EnvSlots):
    """Consecutive worlds of several agents."""

    def _prepare(self, layouts: Layouts) -> None:
        arrays, worlds = self._arrays, len(self.envs)
        assert arrays.lives is not None
        self._lives = arrays.lives
        self._seat = {agent: seat for seat, agent in enumerate(layouts.agents)}
        self._pick = itemgetter(*layouts.agents)
        self._given: list[int | None] = [None] * worlds  # seeds that `reset` gave
        self._since = [0] * worlds  # episodes begun since then
        self._turns = [False] * worlds  # not everybody who lives acts
        self._whole = [False] * worlds  # everybody lives and acts
        self._observation = buffer_of(layouts.observation_space, layouts.observation, arrays.observation)
        self._action = buffer_of(layouts.action_space, layouts.action, arrays.action)
        self._blank = np.zeros((), arrays.observation.dtype)

    def step(self, rows: RowIndex) -> dict[str, Any]:
        """See `EnvSlots.step`."""
        arrays, active_env, agents, seats = self._arrays, self._active_env, self._agents, len(self._agents)
        worlds = numbers(envs_of(rows, seats))
        actions = self._action.take_each(rows)
        given, size = Given(), len(actions)
        try:
            for i in worlds:
                active_env[0] = i
                k, at, base = i - self._first, len(given.rewards), i * seats
                env = self.envs[k]
                own = actions[at : at + seats]
                if self._whole[k]:
                    result: Step = env.step(dict(zip(agents, own, strict=True)))
                    if self._enter_whole(env, k, result, given, base, size):
                        continue
                else:
                    acts = self._lives.acts[base : base + seats].tolist()
                    result = env.step({agents[s]: own[s] for s in range(seats) if acts[s]})
                self._enter_lives(env, i, result, given, base, size)
        except RAISED as error:
            raise_named(error, self._spec, active_env[0], "step")
        try:
            arrays.reward[rows] = given.rewards
            fit = NON_NUMERIC.isdisjoint(map(type, given.rewards))
        except RAISED:
            fit = False
        if not fit:
            for row, reward in zip(numbers(rows), given.rewards, strict=True):
                check_numbers((reward,), self._spec, self._owner(row)[0])
        if len(given.observations) == size:
            self._write(rows, given.observations)
        elif given.observations:
            self._write(np.concatenate([np.array(part, np.intp) for part in given.seen]), given.observations)
        arrays.terminated[rows] = arrays.truncated[rows] = False
        ended = np.array(sorted({*given.terminated, *given.truncated}), np.intp)
        if len(ended):
            arrays.terminated[given.terminated] = arrays.truncated[given.truncated] = True
        fresh = []
        for i in given.over if self._same_step else ():
            fresh.append(self._reset(i, self._next_seed(i), {}))
        # Entered last: where a world fails above, episodes have not ended.
        arrays.running_return[rows] += arrays.reward[rows]
        arrays.running_length[rows] += self._lives.acts[rows]
        if len(ended):
            arrays.final[ended] = arrays.observation[ended]
            arrays.end(ended)
            arrays.observation[ended] = self._blank
        self._lives.over[envs_of(rows, seats)] = False
        self._lives.over[given.over] = True
        for i, alive, acts in given.lives:
            self._note(i, alive, acts)
        where = dict(zip(worlds, range(0, size, seats), strict=True)) if fresh else {}
        for i, (observations, infos) in zip(given.over, fresh, strict=False):
            arrays.episode[i] += 1
            self._begin(i, observations, infos, given.infos, where[i], size)
        active_env[0] = NO_ENV
        return given.infos

    def reset(self, rows: RowIndex, seeds: Sequence[int | None], options: dict[str, Any]) -> dict[str, Any]:
        """See `EnvSlots.reset`."""
        for i, seed in zip(numbers(envs_of(rows, len(self._agents))), seeds, strict=True):
            self._given[i - self._first], self._since[i - self._first] = seed, 0
        return super().reset(rows, seeds, options)

    def _enter_whole(self, env: Any, k: int, result: Step, given: Given, base: int, size: int) -> bool:
        """Enter a step of a world in which everybody lives and acts, if that is so after it too."""
        seen, paid, ended, cut, said = result
        seats = len(self._agents)
        if any(ended.values()) or any(cut.values()) or len(env.agents) != seats:
            return False
        if self._turns[k] and len(env.acting) != seats:
            return False
        try:
            observations, rewards = self._pick(seen), self._pick(paid)
        except KeyError:
            return False
        if any(said.values()):
            self._say(said, given, len(given.rewards), size, base, ())
        given.observations += observations
        given.rewards += rewards
        given.seen.append(range(base, base + seats))
        return True

    def _enter_lives(self, env: Any, i: int, result: Step, given: Given, base: int, size: int) -> None:
        """Enter a step of a world by the table above, seat by seat."""
        seen, paid, ended, cut, said = result
        at, agents = len(given.rewards), self._agents
        flagged = {agent for flags in (ended, cut) for agent, flag in flags.items() if flag}
        listed = self._known(env, i)
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
                        given.terminated.append(row)
                    if cut.get(agent, False):
                        given.truncated.append(row)
                else:
                    given.truncated.append(row)
            born = not lived and here and agent in seen
            if agent in seen and (lived or born):
                given.observations.append(seen[agent])
                observed.append(row)
            if not lived and reward:
                add_info(given.infos, {STRAY: float(reward)}, at + row - base, size)
            given.rewards.append(reward if lived else 0.0)
            alive.append(born or (lived and here))
            acts.append(alive[-1] and agent in acting)
        self._say(said, given, at, size, base, finals)
        given.seen.append(observed)
        given.lives.append((i, alive, acts))
        if over:
            given.over.append(i)

    def _say(self, said: ByAgent, given: Given, at: int, size: int, base: int, finals: Any) -> None:
        """Enter the infos of the world whose first row is base, at the rows from `at` on."""
        for agent, info in said.items():
            if info and agent in self._seat:
                seat = self._seat[agent]
                self._enter_info(given.infos, info, at + seat, size, base + seat, final=agent in finals)

    def _known(self, env: Any, i: int) -> set[Any]:
        """Return the agents that a world lists; EnvError where it has no seat for one."""
        listed = set(env.agents)
        if strange := listed - self._seat.keys():
            names = ", ".join(sorted(map(str, strange)))
            raise EnvError(f"world {i} ({self._spec.id}) has agents {names}, which its possible_agents do not name")
        return listed

    def _acting(self, env: Any, k: int, living: set[Any]) -> set[Any]:
        return living & set(env.acting) if self._turns[k] else living

    def _note(self, i: int, alive: list[bool], acts: list[bool]) -> None:
        """Enter who lives and acts in a world."""
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
        for at, (i, (observations, said)) in enumerate(zip(worlds, begun, strict=True)):
            self._begin(i, observations, said, infos, at * seats, len(worlds) * seats)
        self._active_env[0] = NO_ENV
        return infos

    def _begin(self, i: int, observations: ByAgent, said: ByAgent, infos: dict[str, Any], at: int, size: int) -> None:
        """Enter the results of a reset."""
        env, k = self.envs[i - self._first], i - self._first
        self._turns[k] = takes_turns(env)
        living = self._known(env, i) & observations.keys()
        acting = self._acting(env, k, living)
        base = i * len(self._agents)
        seats = [seat for seat, agent in enumerate(self._agents) if agent in living]
        if seats:
            self._write(base + np.array(seats), [observations[self._agents[seat]] for seat in seats])
        alive = [agent in living for agent in self._agents]
        self._note(i, alive, [agent in acting for agent in self._agents])
        for agent, info in said.items():
            if agent in living:
                seat = self._seat[agent]
                self._enter_info(infos, info, at + seat, size, base + seat)

    def _next_seed(self, i: int) -> int | None:
        """Return the seed of a world's next episode; None where the world goes on from the last one's."""
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
    """Return what steps environments with so many seats."""
    return Slots if layouts.seats == 1 else MultiAgentSlots
