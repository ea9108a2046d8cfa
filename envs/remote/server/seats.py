"""One client's seats in a joint world, behind the interface that a session has for environments of its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.remote.frames import JointEpisode
from paddock.envs.remote.server.history import Holder, JointOutcome, JointStep, Signal, Start
from paddock.envs.remote.server.joint import JointWorld
from paddock.envs.remote.view import Everybody, View, put
from paddock.envs.vector.contract import Batch, EnvError, Rows, VectorEnv, VectorMisuse, keyed_seed
from paddock.envs.vector.infos import merge_infos, pick_infos
from paddock.envs.vector.storage import allocate

MOST_SIGNALS = 1024  # before a step
JOIN_S = 5.0  # for which whoever joins a world waits for the end of a step of it
BRIEF_S = 0.01  # longer than a joint world is held for anything but a step


class CalledAway(Exception):
    """Whoever waits for other clients has something else to look at."""


class WorldBusy(Exception):
    """A joint world takes nobody now, and may soon; the text says why."""


class SeatsVectorEnv(VectorEnv):
    """Some rows of one world; `recv`, `reset` and `begin` wait for other clients.

    Attributes:
        called: whether whoever waits is to stop that, and raise CalledAway.
        replaying: whether the next order is of a client that comes back to where it was.
        chosen: whether others had chosen the seed of its reset.
        back: where in which episode its reset leads; None: it was not done before.
        told: where the episode is that began with what was told last; None: none did.
        seed: of the episode that began last; None: it goes on with the environment's own random numbers.
        world: its name.
        agents: whose seats they are.
        last: whether nobody was left in the world when this was closed.
    """

    def __init__(
        self,
        world: JointWorld,
        agents: Sequence[str],
        view: View = "own",
        autoreset: AutoresetMode = AutoresetMode.DISABLED,
    ) -> None:
        """Take seats.

        Args:
            view: whose observations, rewards and actions `look` tells.

        Raises:
            VectorMisuse: another client has one of them.
            WorldBusy: it is at work on a long step, or ends.
        """
        self._world, self.world, self.autoreset = world, world.name, autoreset
        self.agents = tuple(agents)
        own = [world.agents.index(agent) for agent in agents]
        if not world.changed.acquire(timeout=JOIN_S):
            raise WorldBusy(f"joint world {world.name} has been at work on a step for {JOIN_S:g} s")
        try:
            if world.ended:
                raise WorldBusy(f"joint world {world.name} ends, as its last client has gone")
            self._holder: Holder = world.join(own, follows=autoreset is AutoresetMode.SAME_STEP)
        finally:
            world.changed.release()
        self._own = np.array(own)
        self._mine = np.isin(np.arange(len(world.agents)), own)
        self.num_envs = self.seats = self.batch_size = len(own)
        self._alive = np.zeros(len(own), np.bool_)
        self._key: int | None = None  # of its episodes; None: they have none
        self._number = self._episode = 0  # of the world and the running episode, by which they are keyed
        self.replaying = self.chosen = self.last = False
        self.back: JointEpisode | None = None
        self.told: JointEpisode | None = None
        self.seed: int | None = None
        self._view = view
        self._everybody: list[NDArray[Any]] = []
        self.called: Callable[[], bool] = lambda: False

    @property
    def alive(self) -> NDArray[np.bool_]:
        """See `VectorEnv.alive`."""
        return self._alive

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin anew, once all ask for it; who comes to a running episode is told where it is.

        Raises:
            VectorMisuse: others act, or ask for another episode.
            EnvError: it is to come back to an episode that is not the running one.
        """
        world, holder, self._key = self._world, self._holder, None
        with world.changed:
            past, back = self._past(), self.back
            at = None if back is None else world.find_episode(back)
            if at is not None:
                holder.position = at
                return self._begin(None)
            if back is not None and back.step and self.replaying:
                said = f"to world {world.name} in the midst of an episode whose beginning it does not know"
                raise EnvError(f"this client, which came {said}, cannot have it made anew; reset all")
            joins = past is not None and past.actions is None
            if joins and self.replaying:
                raise EnvError(f"the other clients of world {world.name} have begun another episode; reset all")
            if joins:  # an episode that it has not seen, of which the latest counts
                holder.position = world.end - (world.latest is not None)
            anew = not joins or holder.position == world.end
            start = Start(seed[0], dict(options or {}), chosen=self.chosen, back=back) if anew else None
            return self._begin(start)

    def begin(self, seed: int, episodes: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin a keyed episode, once all ask for it; who was in it before is told again what came of it.

        Raises:
            VectorMisuse: others act, or are elsewhere in their own episodes.
        """
        world, holder = self._world, self._holder
        self._key, self._episode = seed, 0 if episodes is None else int(episodes[0])
        with world.changed:
            start = replace(self._start(self._episode), back=self.back)
            at = world.find(holder.seats, start)
            holder.position = world.end if at is None else at
            return self._begin(start if at is None else None)

    def renumber(self, numbers: Any) -> None:
        """See `VectorEnv.renumber`."""
        (self._number,) = map(int, numbers)

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """Say what these seats do; it is looked at of those who act alone.

        Raises:
            VectorMisuse: the world is over, or they did something else before.
            EnvError: it began anew without them.
        """
        world, holder = self._world, self._holder
        with world.changed:
            past = self._past()
            if past is None and world.latest is None:
                raise VectorMisuse("send: the joint world has no episode; call reset first")
            if past is None:
                holder.actions = np.array(actions)
                world.advance()
            elif past.actions is None:
                raise EnvError("the joint world began anew without this client, which was late; reset it")
            else:
                self._check(past, actions)

    def recv(self, env_ids: Rows = None) -> Batch:
        """Wait for the step that the others are to act in too; where it ends the episode, for the next one's reset."""
        with self._world.changed:
            self._world.wait(lambda: self._is_told() or self.called())
            if not self._is_told():
                raise CalledAway
            outcome, own, self.told = self._take(), self._own, None
            infos = self._infos(outcome) | {"over": np.array([outcome.over])}
            seen = outcome
            if outcome.over and self._holder.follows:
                self._episode += 1
                shown = self._everybody
                seen, self._everybody = self._take(), shown  # what the step told, which ended the episode
                self.told = self._world.where(self._holder.position - 1)
                merge_infos(infos, self._infos(seen), np.arange(len(own)), len(own))
            infos["acts"] = seen.acts[own]
            return (
                seen.observation[own],
                outcome.reward[own],
                outcome.terminated[own],
                outcome.truncated[own],
                infos,
            )

    @property
    def running(self) -> JointEpisode | None:
        """The episode of the world that began last."""
        return self._world.episode

    def look(self) -> list[NDArray[Any]]:
        """Return what came last of everybody, as `Everybody` has it in frames; empty if it is not shown."""
        return self._everybody

    def signal(self, signal: Signal) -> None:
        """Have the environment given a signal, when these seats act next."""
        with self._world.changed:
            past = self._past()
            if past is not None and not past.stood_in.intersection(self._holder.seats):
                return  # it was, before this client lost its session
            # Whoever comes back has told them all before, and tells those of earlier episodes at once.
            if len(self._holder.signals) >= MOST_SIGNALS and not self.replaying:
                raise VectorMisuse(f"signal: {MOST_SIGNALS} wait for the next step already; step first")
            self._holder.signals.append(signal)

    def wait_for_first(
        self, groups: Iterable[Any], called: Callable[[], bool], lock: "Lock | None" = None
    ) -> int | None:
        """See `WaitsForFirst.wait_for_first`; there is one group."""
        with self._world.changed:
            self._world.wait(lambda: self._is_told() or called() or self.called())
            return 0 if self._is_told() else None

    def call_away(self) -> None:
        """See `WaitsForFirst.call_away`; the thread that all clients' messages come to waits for no step."""
        changed = self._world.changed
        if changed.acquire(timeout=BRIEF_S):  # else a step is under way, after which all look
            changed.notify_all()
            changed.release()

    def close_extras(self, **kwargs: Any) -> None:
        """Leave the seats; where they were the last, the world ends."""
        with self._world.changed:
            self.last = self._world.leave(self._holder)
        if self.last:
            self._world.venv.close()

    def _past(self) -> JointStep | None:
        """Return what this client is told next, if that was done already."""
        world, holder = self._world, self._holder
        return world.at(holder.position) if holder.position < world.end else None

    def _check(self, past: JointStep, actions: Any) -> None:
        """Raise VectorMisuse if a step was done with other actions of this client, where it was asked."""
        assert past.actions is not None
        before = self._world.at(self._holder.position - 1).outcome
        assert isinstance(before, JointOutcome)
        given = np.array(actions)
        for row, seat in enumerate(self._own.tolist()):
            same = given[row].tobytes() == past.actions[seat].tobytes()
            if before.acts[seat] and seat not in past.stood_in and not same:
                agent = self._world.agents[seat]
                raise VectorMisuse(f"send: {agent} did something else before at this step of the joint world")

    def _is_told(self) -> bool:
        """Return whether there is something to tell; whoever follows asks for the episode after one that is over."""
        world, holder = self._world, self._holder
        if holder.error is not None:
            return True
        past = self._past()
        ended = past is not None and isinstance(past.outcome, JointOutcome) and past.outcome.over
        if not ended or not holder.follows:
            return past is not None
        if holder.position + 1 == world.end and holder.reset is None:
            holder.reset = self._start(self._episode + 1)
            world.advance()
        return holder.error is not None or holder.position + 1 < world.end

    def _start(self, episode: int) -> Start:
        """Return the start of an episode by its number; without a key, of the one that comes after the last."""
        return Start(None) if self._key is None else Start(keyed_seed(self._key, self._number, episode), {}, episode)

    def _begin(self, start: Start | None) -> tuple[Any, dict[str, Any]]:
        """Wait for an episode that is asked for, or that had been begun.

        Raises:
            CalledAway: there is something else to look at.
        """
        world, holder = self._world, self._holder
        holder.reset = start
        world.wait(lambda: (holder.reset is not start if start else self._past() is not None) or self.called())
        if start is not None and holder.reset is start:
            holder.reset = None
            raise CalledAway
        outcome = self._take()
        self.told = world.where(holder.position - 1)
        return outcome.observation[self._own], {"acts": outcome.acts[self._own], **self._infos(outcome)}

    def _take(self) -> JointOutcome:
        """Return what this client is told next, which is there; raises what it is told instead."""
        world, holder = self._world, self._holder
        error, holder.error = holder.error, None
        if error is not None:
            raise error
        played = world.at(holder.position)
        holder.position += 1
        if not isinstance(played.outcome, JointOutcome):
            raise EnvError(str(played.outcome))
        self._alive = played.outcome.alive[self._own]
        self.seed = played.seed
        if self._view == "all":
            self._everybody = _see_all(played, played.outcome, world)
        return played.outcome

    def _infos(self, outcome: JointOutcome) -> dict[str, Any]:
        return pick_infos(outcome.infos, self._mine)


def _see_all(played: JointStep, outcome: JointOutcome, world: JointWorld) -> list[NDArray[Any]]:
    """Return what a reset or step told all seats, and what they did."""
    S, rows = len(world.agents), outcome.observation.copy()
    for seat in np.flatnonzero(outcome.infos.get("_final_obs", ())).tolist():
        put(rows, seat, outcome.infos["final_obs"][seat])
    ended = outcome.terminated | outcome.truncated
    acted = np.zeros(S, np.bool_) if played.acted is None else played.acted
    actions = allocate(world.layouts.action_rows, S, np.zeros)
    if played.actions is not None:
        actions[acted] = played.actions[acted]
    seen = Everybody(rows, outcome.reward, outcome.terminated, outcome.truncated, outcome.alive | ended, actions, acted)
    return seen.arrays()
