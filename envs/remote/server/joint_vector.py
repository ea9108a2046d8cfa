"""Vector environment of one client's agents in a joint environment."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from paddock.envs.remote.server.joint import (
    Client,
    JointEnv,
    JointOutcome,
    JointStep,
    Start,
    Unavailable,
    WaitInterrupted,
)
from paddock.envs.vector.contract import Batch, EnvError, Rows, VectorEnv, VectorMisuse, keyed_seed
from paddock.envs.vector.infos import merge_infos, pick_infos

JOIN_S = 5.0  # time for which a new client waits for the end of a step


class JointVectorEnv(VectorEnv):
    """Rows of one client's agents; `recv`, `reset` and `begin` wait for other clients.

    Attributes:
        interrupted: returns True if a wait must raise WaitInterrupted.
        last: this was the last client when it was closed.
    """

    def __init__(
        self,
        joint: JointEnv,
        agents: Sequence[str],
        autoreset: AutoresetMode = AutoresetMode.DISABLED,
    ) -> None:
        """Add a client with some agents to a joint environment.

        Raises:
            VectorMisuse: another client has one of the agents.
            Unavailable: a step takes long, or the environment is closing.
        """
        self.joint, self.agents, self.autoreset = joint, tuple(agents), autoreset
        own = [joint.agents.index(agent) for agent in agents]
        if not joint.changed.acquire(timeout=JOIN_S):
            raise Unavailable(f"joint world {joint.name} has been stepping for {JOIN_S:g} s")
        try:
            if joint.ended:
                raise Unavailable(f"joint world {joint.name} is closing, as its last client has left")
            self._client: Client = joint.add_client(own, follows=autoreset is AutoresetMode.SAME_STEP)
        finally:
            joint.changed.release()
        self._own, self._mask = np.array(own), np.isin(np.arange(len(joint.agents)), own)
        self.num_envs = self.seats = self.batch_size = len(own)
        self.alive = np.zeros(len(own), np.bool_)
        self._key = self._number = self._episode = 0  # key of its episode
        self.last = False
        self.interrupted: Callable[[], bool] = lambda: False

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `reset_at`."""
        observation, infos, _ = self.reset_at(seed[0], options)
        return observation, infos

    def reset_at(
        self,
        seed: int | None,
        options: dict[str, Any] | None = None,
        id: str | None = None,
        step: int = 0,
        next_seed: int | None = None,
    ) -> tuple[Any, dict[str, Any], list[Any]]:
        """Reset once all clients request it; a client that joins a running episode gets its latest outcome.

        Args:
            seed: of the episode; None: chosen by other clients.
            options: of the reset.
            id: identifier of an episode to which the client returns; None: a new episode.
            step: step of that episode.
            next_seed: the seed if no client chooses one.

        Returns:
            Observations, infos, and the [seed, identifier, step] that restore them.

        Raises:
            VectorMisuse: others act or request another episode, or episodes restart automatically.
            EnvError: the episode to which the client returns is over.
        """
        joint, client = self.joint, self._client
        if client.follows:
            raise VectorMisuse("reset: a joint world with autoreset cannot be reset; call begin")
        with joint.changed:
            start: Start | None = Start(seed, dict(options or {}), id=id, next_seed=next_seed)
            past = self._past()
            at = None if id is None else joint.find(id)
            if at is not None:
                client.position, start = at + step, None
            elif step:
                what = f"this client joined world {joint.name} during an episode, which it cannot restore"
                raise EnvError(f"{what}; reset all clients")
            elif id is not None and joint.latest is not None:
                raise EnvError(f"the other clients of world {joint.name} have begun another episode; reset all")
            elif past is not None and past.actions is None:
                start = None  # done before the client lost its session
            elif client.position is None and joint.latest is not None:
                client.position, start = joint.end - 1, None  # a running episode that it joins
            observation, infos = self._begin(start)
            assert client.position is not None
            done = joint.at(client.position - 1)
            began = joint.at(client.position - 1 - done.step)
            return observation, infos, [began.seeds[client.seats[0]], began.id, done.step]

    def begin(self, seed: int, episodes: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start a keyed episode once all clients request it, or return to one that is kept.

        Raises:
            VectorMisuse: others act, or request other episodes.
        """
        joint, client = self.joint, self._client
        self._key, self._episode = seed, 0 if episodes is None else int(episodes[0])
        with joint.changed:
            start = self._start(self._episode)
            assert start.seed is not None
            at = joint.find_seed(client.seats, start.seed)
            client.position = joint.end if at is None else at
            return self._begin(start if at is None else None)

    def renumber(self, numbers: Any) -> None:
        """See `VectorEnv.renumber`."""
        (self._number,) = map(int, numbers)

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """Submit these agents' actions; those of agents that do not act are ignored.

        Raises:
            VectorMisuse: the episode is over, or a replayed step had other actions.
        """
        joint, client = self.joint, self._client
        with joint.changed:
            past = self._past()
            if past is None and joint.latest is None:
                raise VectorMisuse("send: the joint world has no episode; call reset first")
            if past is None:
                client.actions = np.array(actions)
                joint.advance()
            else:
                self._check(past, actions)

    def recv(self, env_ids: Rows = None) -> Batch:
        """Wait for the joint step and, if it ends the episode, for the automatic reset."""
        with self.joint.changed:
            self.joint.wait(self._has_outcome, self.interrupted)
            outcome, own = self._take(), self._own
            infos = self._infos(outcome) | {"over": np.array([outcome.over])}
            seen = outcome
            if outcome.over and self._client.follows:
                self._episode += 1
                seen = self._take()
                merge_infos(infos, self._infos(seen), np.arange(len(own)), len(own))
            infos["acts"] = seen.acts[own]
            flags = outcome.terminated[own], outcome.truncated[own]
            return seen.observation[own], outcome.reward[own], *flags, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Release the agents; the last client closes the environment."""
        with self.joint.changed:
            self.joint.clients.remove(self._client)
            self.last = self.joint.ended = not self.joint.clients
        if self.last:
            self.joint.venv.close()

    def _past(self) -> JointStep | None:
        """Return this client's next reset or step if it has already been done."""
        joint, position = self.joint, self._client.position
        return joint.at(position) if position is not None and position < joint.end else None

    def _check(self, past: JointStep, actions: Any) -> None:
        """Raise VectorMisuse if a step was done with other actions of this client's acting agents."""
        given = np.array(actions)
        for row, seat in enumerate(self._own.tolist()):
            if past.actions is None or past.acted is None or not past.acted[seat]:
                continue
            if given[row].tobytes() != past.actions[seat].tobytes():
                agent = self.joint.agents[seat]
                raise VectorMisuse(f"send: {agent} already took another action at this step of the joint world")

    def _has_outcome(self) -> bool:
        """Return whether an outcome is available; request the next episode if this one is over and restarts."""
        joint, client = self.joint, self._client
        if client.error is not None:
            return True
        past = self._past()
        ended = past is not None and isinstance(past.outcome, JointOutcome) and past.outcome.over
        if not ended or not client.follows:
            return past is not None
        assert client.position is not None
        if client.position + 1 == joint.end and client.start is None:
            client.start = self._start(self._episode + 1)
            joint.advance()
        return client.error is not None or client.position + 1 < joint.end

    def _start(self, episode: int) -> Start:
        """Return the request of a keyed episode."""
        return Start(keyed_seed(self._key, self._number, episode), {}, episode)

    def _begin(self, start: Start | None) -> tuple[Any, dict[str, Any]]:
        """Wait for a requested episode, or take the outcome of one that has started; may raise WaitInterrupted."""
        joint, client = self.joint, self._client
        if start is not None:
            client.start = start
            joint.advance()
            try:
                joint.wait(lambda: client.start is not start, self.interrupted)
            except WaitInterrupted:
                client.start = None
                raise
        outcome = self._take()
        return outcome.observation[self._own], {"acts": outcome.acts[self._own], **self._infos(outcome)}

    def _take(self) -> JointOutcome:
        """Return this client's next outcome, which is available, or raise its error."""
        joint, client = self.joint, self._client
        error, client.error = client.error, None
        if error is not None:
            raise error
        assert client.position is not None
        done = joint.at(client.position)
        client.position += 1
        if not isinstance(done.outcome, JointOutcome):
            raise EnvError(str(done.outcome))
        self.alive = done.outcome.alive[self._own]
        return done.outcome

    def _infos(self, outcome: JointOutcome) -> dict[str, Any]:
        return pick_infos(outcome.infos, self._mask)
