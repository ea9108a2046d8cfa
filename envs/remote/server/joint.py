"""Joint environment: one multi-agent environment whose agents belong to different clients.

It steps once all acting agents have an action and all other clients are waiting, and resets once all clients request it.
Outcomes of the current and the previous episode are kept, so that a client that lost its session can catch up. Results
equal those of a single client with all agents and do not depend on the order of messages.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import PaddockError
from paddock.envs.remote.values import encode
from paddock.envs.vector.contract import VectorEnv, VectorMisuse
from paddock.envs.vector.storage import Layouts

log = logging.getLogger("paddock.envs.remote")

POLL_S = 0.1  # interval of checks whether a wait is interrupted
RUNS = "resume all runs from checkpoints of the same iteration, or restart all"
OTHERS = "pass the same seed and options in all, or pass them in one only"


class Unavailable(Exception):
    """A client cannot be accepted now, but may be later."""


class WaitInterrupted(Exception):
    """A wait for other clients was interrupted."""


@dataclass(frozen=True)
class Start:
    """Episode that a client requests."""

    seed: int | None  # None: chosen by other clients
    options: dict[str, Any] = field(default_factory=dict)  # of the reset
    episode: int | None = None  # number of a keyed episode; None: not keyed
    id: str | None = None  # identifier of an episode to which the client returns; None: a new episode
    next_seed: int | None = None  # the seed if no client chooses one; None: a random one

    def __str__(self) -> str:
        return f"seed={self.seed}" if self.episode is None else f"episode {self.episode} of its run"


@dataclass(eq=False)
class Client:
    """Client with some of the agents."""

    seats: list[int]  # indices of its agents
    follows: bool  # its episodes restart automatically; otherwise by resets
    position: int | None = None  # of its next outcome in the environment's history; None: it has started no episode
    start: Start | None = None  # the episode that it requests
    actions: NDArray[Any] | None = None  # rows of its agents for the step that it requests
    error: PaddockError | None = None  # raised instead of an outcome

    @property
    def asks(self) -> bool:
        """Return whether it requests a step or a reset."""
        return self.start is not None or self.actions is not None


@dataclass(eq=False)
class JointOutcome:
    """Outcome of a reset or step for all agents, [A] each."""

    observation: NDArray[Any]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[str, Any]
    alive: NDArray[np.bool_]
    acts: NDArray[np.bool_]
    over: bool


@dataclass(eq=False)
class JointStep:
    """Reset or step, and its outcome."""

    id: str  # identifier of the episode
    step: int = 0  # index in the episode; 0: its reset
    # Of a reset, by seat: the requested seed, or else the episode's.
    seeds: dict[int, int] = field(default_factory=dict)
    actions: NDArray[Any] | None = None  # rows [A] of a step; None: a reset
    acted: NDArray[np.bool_] | None = None  # [A], agents whose actions the environment received; None: none
    outcome: JointOutcome | PaddockError | None = None  # or the error that was raised


@dataclass(eq=False)
class JointEnv:
    """One environment and its clients; callers of methods hold `changed`."""

    name: str
    venv: VectorEnv  # of one environment, before its reset
    layouts: Layouts
    clients: list[Client] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    history: list[JointStep] = field(default_factory=list)
    first: int = 0  # position of the first entry
    begun: int = 0  # position of the latest reset
    ended: bool = False  # the last client has left

    def __post_init__(self) -> None:
        self.agents = self.layouts.agents

    @property
    def end(self) -> int:
        """Return the position of the next reset or step."""
        return self.first + len(self.history)

    def at(self, position: int) -> JointStep:
        """Return the reset or step at a position."""
        return self.history[position - self.first]

    @property
    def latest(self) -> JointOutcome | None:
        """Return the latest outcome; None if no episode is running."""
        outcome = self.history[-1].outcome if self.history else None
        return outcome if isinstance(outcome, JointOutcome) and not outcome.over else None

    def find(self, id: str) -> int | None:
        """Return the position of an episode's reset; None if it is not kept."""
        kept = (k for k in range(self.first, self.end) if self.at(k).id == id and self.at(k).actions is None)
        return next(kept, None)

    def find_seed(self, seats: Sequence[int], seed: int) -> int | None:
        """Return the position of the latest reset of these seats on a seed; None if none is kept."""
        for position in range(self.end - 1, self.first - 1, -1):
            if all(self.at(position).seeds.get(seat) == seed for seat in seats):
                return position
        return None

    def add_client(self, seats: Sequence[int], *, follows: bool = False) -> Client:
        """Assign agents to a new client; raise VectorMisuse if another client has one of them."""
        owned = {seat for one in self.clients for seat in one.seats}
        if taken := ", ".join(self.agents[seat] for seat in sorted(seats) if seat in owned):
            free = ", ".join(agent for seat, agent in enumerate(self.agents) if seat not in owned) or "none"
            raise VectorMisuse(f"another client controls {taken} in world {self.name}; free: {free}")
        client = Client(list(seats), follows)
        self.clients.append(client)
        return client

    def wait(self, done: Callable[[], bool], interrupted: Callable[[], bool]) -> None:
        """Wait until `done` returns True; raise WaitInterrupted once `interrupted` does."""
        while not done():
            if interrupted():
                raise WaitInterrupted
            self.changed.wait(POLL_S)

    def advance(self) -> None:
        """Step or reset if all clients have made a request."""
        asking = sorted((one for one in self.clients if one.asks), key=lambda one: one.seats[0])
        if sum(len(one.seats) for one in asking) < len(self.agents):
            return
        acting = [one for one in asking if one.actions is not None]
        acts = np.zeros(len(self.agents), np.bool_) if self.latest is None else self.latest.acts
        early = [one for one in asking if one.start is not None and acts[one.seats].any()]
        if not acting:
            self._reset(asking)
        elif early:
            names = [", ".join(map(self._name, some)) for some in (early, acting)]
            what = f"joint world {self.name}: {names[0]} requests a reset while {names[1]} acts"
            fix = RUNS if any(one.start and one.start.episode is not None for one in early) else "reset all, or none"
            self._fail([*early, *acting], VectorMisuse(f"{what}; {fix}"))
        else:
            self._step(acting)
        self.changed.notify_all()

    def _reset(self, asking: Sequence[Client]) -> None:
        starts = [one.start for one in asking if one.start is not None]
        seeds = {one.seed for one in starts if one.episode is None and one.seed is not None}
        episodes = {one.episode for one in starts if one.episode is not None}
        ids = {one.id for one in starts if one.episode is None}  # None: a new episode
        options = [one.options for one in starts if one.options]
        if max(len(seeds), len(episodes), len(ids), len({encode(one) for one in options})) > 1:
            requests = "; ".join(f"{self._name(one)}: {one.start}" for one in asking)
            what = f"reset: clients of a joint world request different episodes ({requests})"
            self._fail(asking, VectorMisuse(f"{what}; {RUNS if episodes else OTHERS}"))
            return
        # Runs have different keys; the key of the run with the first agent is used.
        keyed = [one.seed for one in starts if one.episode is not None]
        following = [one.next_seed for one in starts if one.next_seed is not None]
        seed = next(iter([*seeds, *keyed, *following]), None)
        seed = SystemRandom().randrange(2**31) if seed is None else seed
        before, self.begun = self.begun, self.end
        done = JointStep(next(iter(ids), None) or secrets.token_hex(8))
        for one in asking:
            own = seed if one.start is None or one.start.seed is None else one.start.seed
            done.seeds |= dict.fromkeys(one.seats, own)
        try:
            observation, infos = self.venv.reset(seed=[seed], options=options[0] if options else None)
            reward, no = np.zeros(len(self.agents)), np.zeros(len(self.agents), np.bool_)
            done.outcome = self._read(observation, reward, no, no, infos)
        except PaddockError as error:
            done.outcome = error
        self.history.append(done)
        for one in asking:
            one.start = None
            if not one.follows or one.position is None:
                one.position = self.begun
        needed = min([before, *(one.position for one in self.clients if one.position is not None)])
        del self.history[: needed - self.first]
        self.first = max(needed, self.first)

    def _step(self, acting: Sequence[Client]) -> None:
        before = self.history[-1].outcome
        assert isinstance(before, JointOutcome)
        actions = np.zeros(len(self.agents), self.layouts.action.row)
        for one in acting:
            actions[one.seats], one.actions = one.actions, None
        done = JointStep(self.history[-1].id, self.history[-1].step + 1, actions=actions, acted=before.acts)
        try:
            self.venv.send(actions)
            done.outcome = self._read(*self.venv.recv())
        except PaddockError as error:
            done.outcome = error
        self.history.append(done)

    def _read(self, observation: Any, reward: Any, ended: Any, cut: Any, infos: dict[str, Any]) -> JointOutcome:
        """Return the outcome from the results of the vector."""
        acts, over = infos.pop("acts"), bool(infos.pop("over", [False])[0])
        own = [np.array(one) for one in (observation, reward, ended, cut, self.venv.alive)]  # copies
        if "final_obs" in infos:
            infos["final_obs"] = infos["final_obs"].copy()
        return JointOutcome(own[0], own[1], own[2], own[3], infos, own[4], acts, over)

    def _fail(self, clients: Sequence[Client], error: PaddockError) -> None:
        """Answer these clients' requests with an error."""
        for one in clients:
            one.start = one.actions = None
            one.error = error

    def _name(self, client: Client) -> str:
        return "+".join(self.agents[seat] for seat in client.seats)
