"""A joint world: one environment of several agents, whose seats are different clients'.

It steps once all who act have an action, and every other client has said that it waits; it begins anew once all have
asked for that. What came of each is kept for the running episode, so a client that lost its session is led to where
the others are; and for some before it where a client trains, which may be killed and come back to its checkpoint. So
the numbers are those of one client with all seats, whatever the order and speed of arrival; unless `late` or `lost` is
another policy than wait: then steps in which one stood in say `timed` in everybody's infos.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import SystemRandom
from typing import Any

import numpy as np

from paddock.envs.errors import PaddockError
from paddock.envs.remote.frames import JointEpisode
from paddock.envs.remote.server.history import Holder, JointOutcome, JointStep, Start
from paddock.envs.remote.server.policies import Policies, Policy, make_noops
from paddock.envs.remote.values import are_same
from paddock.envs.vector.contract import EnvError, VectorEnv, VectorMisuse
from paddock.envs.vector.storage import Layouts, allocate
from paddock.envs.worlds.roles import Role

log = logging.getLogger("paddock.envs.remote")

LONGEST_S = 1.0  # between looks, also where nobody says that something has changed
RUNS = "runs go on from one iteration: delete the newest checkpoints of whoever is further on, or begin all anew"
OTHERS = "name one seed and the same options, or none in all but one"


@dataclass(eq=False)
class JointWorld:
    """One world and its clients; methods are called with `changed` held."""

    name: str
    venv: VectorEnv  # one world that waits for its reset
    layouts: Layouts
    roles: Sequence[Role]
    policies: Policies
    clock: Callable[[], float] = time.monotonic
    history_bytes: float = 0.0  # of episodes before the running one, at most
    holders: list[Holder] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    history: list[JointStep] = field(default_factory=list)
    first: int = 0  # position of the first of them
    begun: int = 0  # position of the reset of the running episode, or the one that ended last
    episode: JointEpisode | None = None  # that began there
    ended: bool = False  # as its last client has left

    def __post_init__(self) -> None:
        self.agents = self.layouts.agents
        self._claimed: set[int] = set()  # ever
        self._seeded = False  # the environment's random numbers
        self._given = 0  # signals
        self._free_since: dict[int, float] = {}
        self._asked_since: float | None = None
        self._return, self._length = np.zeros(len(self.agents)), np.zeros(len(self.agents), np.int64)

    @property
    def end(self) -> int:
        """The position of what is done next."""
        return self.first + len(self.history)

    def at(self, position: int) -> JointStep:
        """Return what was done at a position."""
        return self.history[position - self.first]

    @property
    def latest(self) -> JointOutcome | None:
        """What came last; None where no episode runs."""
        outcome = self.history[-1].outcome if self.history else None
        return outcome if isinstance(outcome, JointOutcome) and not outcome.over else None

    def find(self, seats: Sequence[int], start: Start) -> int | None:
        """Return the position of the latest reset that is kept and that these seats asked for so; None if none is."""
        for position in range(self.end - 1, self.first - 1, -1):
            if all(self.at(position).starts.get(seat) == start for seat in seats):
                return position
        return None

    def find_episode(self, episode: JointEpisode) -> int | None:
        """Return the position of a step of an episode, or of its reset; None if that is not kept."""
        for position in range(self.end - 1, self.first - 1, -1):
            if episode.same(self.at(position).episode):
                return position + episode.step if position + episode.step < self.end else None
        return None

    def where(self, position: int) -> JointEpisode | None:
        """Return where in its episode a position is."""
        for began in range(position, self.first - 1, -1):
            if (episode := self.at(began).episode) is not None:
                return replace(episode, step=position - began)
        return None

    def join(self, seats: Sequence[int], *, follows: bool = False) -> Holder:
        """Give a client seats that nobody has.

        Args:
            follows: see `Holder`.

        Raises:
            VectorMisuse: somebody has one of them.
        """
        taken = sorted(seat for one in self.holders for seat in one.seats if seat in seats)
        if taken:
            free = [a for k, a in enumerate(self.agents) if all(k not in one.seats for one in self.holders)]
            names = ", ".join(self.agents[seat] for seat in taken)
            raise VectorMisuse(
                f"{names} is another client's in world {self.name}; free are {', '.join(free) or 'none'}"
            )
        holder = Holder(list(seats), self.begun, follows)
        self.holders.append(holder)
        self._claimed.update(seats)
        for seat in seats:
            self._free_since.pop(seat, None)
        self.changed.notify_all()  # whoever waits for a client that is late has one more to wait for
        return holder

    def leave(self, holder: Holder) -> bool:
        """Free a client's seats; whether nobody is left."""
        self.holders.remove(holder)
        self.ended = not self.holders
        self._free_since |= dict.fromkeys(holder.seats, self.clock())
        self.changed.notify_all()  # from now on its time runs
        self.advance()
        return self.ended

    def advance(self) -> None:
        """Do what all ask for, if they do, or if those who do not have been waited for long enough."""
        asking = [one for one in self.holders if one.asks]
        if not asking:
            self._asked_since = None
            return
        if self._asked_since is None:
            self._asked_since = self.clock()
        missing = self._find_missing()
        if missing is None:
            return
        try:
            acting = [one for one in asking if one.actions is not None]
            acts = np.zeros(len(self.agents), np.bool_) if self.latest is None else self.latest.acts
            early = [one for one in asking if one.reset is not None and acts[one.seats].any()]
            if not acting:
                self._reset(asking)
            elif early:
                self._refuse(early, acting)
            else:
                self._step(acting, missing)
        finally:
            self._asked_since = None
            self.changed.notify_all()

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until something is done."""
        while not done():
            self.advance()
            if not done():
                self.changed.wait(self._wait_s())

    def _wait_s(self) -> float:
        """Return seconds until a policy may have to stand in; one whose time has come waits for something else."""
        now = self.clock()
        due = [now + LONGEST_S]
        if self.policies.lost != "wait":
            due += [since + self.policies.lost_s for since in self._free_since.values()]
        if self.policies.late != "wait" and self._asked_since is not None:
            due.append(self._asked_since + self.policies.late_s)
        return min(one for one in due if one > now) - now

    def _find_missing(self) -> dict[int, Policy] | None:
        """Return the seats of which nobody says anything, and what is done about it; None if they are waited for."""
        if len(self._claimed) < len(self.agents):
            return None
        now = self.clock()
        missing: dict[int, Policy] = {}
        for one in self.holders:
            if not one.asks:
                late = self._asked_since is not None and now - self._asked_since >= self.policies.late_s
                if self.policies.late == "wait" or not late:
                    return None
                missing |= dict.fromkeys(one.seats, self.policies.late)
        for seat, since in self._free_since.items():
            if self.policies.lost == "wait" or now - since < self.policies.lost_s:
                return None
            missing[seat] = self.policies.lost
        return missing

    def _reset(self, asking: Sequence[Holder]) -> None:
        asking = sorted(asking, key=lambda one: one.seats[0])
        starts = [one.reset for one in asking if one.reset is not None]
        seeds = {one.seed for one in starts if one.episode is None and one.seed is not None and not one.chosen}
        episodes = {one.episode for one in starts if one.episode is not None}
        options = [one.options for one in starts if one.options]
        # Runs have keys of their own, of which the one with the first seat counts.
        keyed = [one.seed for one in starts if one.episode is not None]
        chosen = [one.seed for one in starts if one.chosen]
        seed = next(iter([*seeds, *keyed, *chosen]), None if self._seeded else SystemRandom().randrange(2**31))
        backs = [one.back for one in starts if one.back is not None]
        others = max(len(seeds), len(episodes)) > 1 or any(one != seed for one in chosen)
        others = others or not all(one.same(backs[0]) for one in backs)
        if others or not all(are_same(given, options[0]) for given in options):
            told = "; ".join(f"{self._name(one)}: {one.reset}" for one in asking)
            said = f"reset: clients of a joint world ask for different episodes ({told})"
            self._fail(asking, VectorMisuse(f"{said}; {RUNS if episodes else OTHERS}"))
            return
        signals = [one for holder in asking for one in holder.signals]
        count = self._given + len(signals)
        given = [one.signals for one in backs if one.signals is not None]
        if given and given[0] != count:
            said = f"was given {given[0]} signals before, and its clients have {count} of them"
            lost = f"joint world {self.name} {said}, so it cannot be brought to where it was; reset all"
            self._fail(asking, EnvError(lost))
            return
        before = self.episode or max([one.place for one in signals if one.place], key=_order, default=None)
        before = before or JointEpisode(secrets.token_hex(8), 0)
        self.episode = replace(backs[0] if backs else replace(before, number=before.number + 1), signals=count)
        self.begun, self._seeded = self.end, True
        played = JointStep(seed=seed, episode=self.episode)
        played.starts = {seat: one.reset for one in asking for seat in one.seats if one.reset}
        try:
            self._signal(asking, self.episode)
            observation, infos = self.venv.reset(seed=[seed], options=options[0] if options else None)
            self._return[:] = self._length[:] = 0
            reward, flags = np.zeros(len(self.agents)), np.zeros(len(self.agents), np.bool_)
            played.outcome = self._read(observation, reward, flags, flags, infos)
        except PaddockError as error:
            played.outcome = error
        self.history.append(played)
        for one in self.holders:
            one.reset = one.actions = None
            if not one.follows:
                one.position = self.begun
        self._forget()

    def _forget(self) -> None:
        """Forget what nobody comes back to."""
        needed = min([self.begun, *(one.position for one in self.holders)]) - self.first
        sizes = [one.size for one in self.history[:needed]]
        kept, count = 0, needed
        while count and kept + sizes[count - 1] <= self.history_bytes * any(one.follows for one in self.holders):
            count -= 1
            kept += sizes[count]
        del self.history[:count]
        self.first += count

    def _step(self, acting: Sequence[Holder], missing: Mapping[int, Policy]) -> None:
        """Step, with stand-ins for seats that act and are missing."""
        before, played = self.history[-1], JointStep(stood_in=frozenset(missing))
        assert isinstance(before.outcome, JointOutcome) and self.episode is not None
        due = {seat: policy for seat, policy in missing.items() if before.outcome.acts[seat]}
        actions = allocate(self.layouts.action_rows, len(self.agents), np.zeros)
        for one in acting:
            actions[one.seats] = one.actions
        for seat, policy in due.items():
            step, agent = self.end - self.begun, self.agents[seat]
            log.warning("joint world %s: %s was missing at step %d: %s", self.name, agent, step, policy)
            last = policy == "last" and before.actions is not None
            actions[seat] = (before.actions if last else make_noops(self.layouts, self.roles))[seat]  # type: ignore[index]
        played.actions = actions
        try:
            if "truncate" in due.values():
                played.outcome = self._truncate(before.outcome)
            else:
                self._signal(acting, replace(self.episode, step=self.end - self.begun))
                played.acted = before.outcome.acts
                self.venv.send(actions)
                observation, reward, terminated, truncated, infos = self.venv.recv()
                self._return += reward
                self._length += before.outcome.acts
                played.outcome = self._read(observation, reward, terminated, truncated, infos)
            if due:
                played.outcome.infos |= {"timed": np.ones(len(self.agents), np.bool_)}
        except PaddockError as error:
            played.outcome = error
        self.history.append(played)
        for one in acting:
            one.actions = None

    def _signal(self, asking: Sequence[Holder], now: JointEpisode) -> None:
        """Give the environment what clients told, in the order of seats; what it was given before, as it was then."""
        holders = sorted(asking, key=lambda one: one.seats[0])
        signals = [(one, signal) for one in holders for signal in one.signals]
        for one, signal in sorted(signals, key=lambda pair: _order(pair[1].place or now)):
            one.signals.remove(signal)  # first: what is refused is not told again
            self.venv.call("receive_signal", signal.key, signal.value)
            self._given += 1

    def _read(self, observation: Any, reward: Any, ended: Any, cut: Any, infos: dict[str, Any]) -> JointOutcome:
        """Return what a vector of one world gave."""
        acts, over = infos.pop("acts"), bool(infos.pop("over", [False])[0])
        own = [np.array(one) for one in (observation, reward, ended, cut, self.venv.alive)]  # the vector's change
        if "final_obs" in infos:
            infos["final_obs"] = infos["final_obs"].copy()
        return JointOutcome(own[0], own[1], own[2], own[3], infos, own[4], acts, over)

    def _truncate(self, before: JointOutcome) -> JointOutcome:
        """Return an end of the episode for all who live; the environment is told nothing of it until its reset."""
        S, alive = len(self.agents), before.alive
        finals, no = np.full(S, None, object), np.zeros(S, np.bool_)
        for seat in np.flatnonzero(alive):
            finals[seat] = before.observation[seat].copy()
        episode = {"r": self._return.copy(), "_r": alive, "l": self._length.copy(), "_l": alive}
        infos: dict[str, Any] = {"final_obs": finals, "_final_obs": alive, "_final_info": alive}
        infos |= {"final_info": {"episode": episode, "_episode": alive}}
        return JointOutcome(np.zeros_like(before.observation), np.zeros(S), no, alive.copy(), infos, no, no, True)

    def _refuse(self, early: Sequence[Holder], acting: Sequence[Holder]) -> None:
        names = [", ".join(map(self._name, some)) for some in (early, acting)]
        said = f"{names[0]} asks for a reset where {names[1]} acts"
        self._fail(
            [*early, *acting], VectorMisuse(f"joint world {self.name}: {said}; reset all, or none before its end")
        )

    def _fail(self, holders: Sequence[Holder], error: PaddockError) -> None:
        """Tell these clients an error in place of what they ask for."""
        for one in holders:
            one.reset = one.actions = None
            one.error = error

    def _name(self, holder: Holder) -> str:
        return "+".join(self.agents[seat] for seat in holder.seats)


def _order(place: JointEpisode) -> tuple[int, int]:
    """Return what comes first in a world."""
    return place.number, place.step
