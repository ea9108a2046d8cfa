"""Multi-agent environment at a server, with the API of PettingZoo's ParallelEnv."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.multiagent.env import ByAgent, Step
from paddock.envs.vector.buffers import WriteError, buffer_of
from paddock.envs.vector.contract import VectorMisuse
from paddock.envs.vector.infos import split_infos
from paddock.envs.vector.remote import check_single_server, make_endpoint
from paddock.envs.vector.storage import allocate

if TYPE_CHECKING:
    from paddock.envs.remote.client.vector import RemoteVectorEnv

BESIDE = ("acts", "over", "final_obs", "_final_obs")  # keys of infos that a vector adds


class RemoteParallelEnv:
    """Multi-agent environment of a server; a step takes one message in each direction.

    The API is that of PettingZoo's ParallelEnv (Terry et al. 2021, arXiv:2009.14471), which need not be installed.

    Attributes:
        agents: living agents.
        acting: agents whose actions the next step takes.
        over: no episode is running.
    """

    render_mode = None

    def __init__(
        self,
        address: str | Sequence[str],
        token_file: str | None = None,
        tls: Mapping[str, str | None] | None = None,
        wait_s: float = 120.0,
        world: str | None = None,
        agents: Sequence[str] | None = None,
    ) -> None:
        """Ask a server for its offer; the first reset opens a session.

        Args:
            address: HOST:PORT or unix:PATH; with several, another server replaces a lost one (joint environments must
                have a single address).
            token_file: file with the server's token; None: the variable PADDOCK_TOKEN, if set.
            tls: PEM files `ca`, `cert` and `key`; None: no encryption.
            wait_s: time for which an unreachable server is retried.
            world: name of a joint environment, shared with other clients; None: not joint.
            agents: this client's agents of a joint environment; None: all.

        Raises:
            ConfigError: gRPC is not installed, the server refuses, or agents or addresses are invalid.
            EnvError: the server cannot be reached.
        """
        self.metadata: dict[str, Any] = {"render_modes": [], "name": "remote"}
        check_single_server([address] if isinstance(address, str) else address, world)
        joint = f"agents={agents} needs a joint environment; set world, or remove agents"
        require(agents is None or world is not None, joint)
        self._endpoint = make_endpoint(address, token_file, tls or {}, wait_s)
        self.offer = self._endpoint.offers()[0]
        layouts = self._layouts = self.offer.layouts(agents)
        self._claim = {} if world is None else {"worlds": [world], "agents": layouts.agents}
        self.possible_agents = list(layouts.agents)
        self.agents: list[str] = []
        self.acting: list[str] = []
        self.over = True
        # A copy for each agent, since users seed them.
        self._spaces = {
            agent: (deepcopy(role.observation_space), deepcopy(role.action_space))
            for role in self.offer.pick_roles(agents)
            for agent in role.agents
        }
        actions = allocate(layouts.action, layouts.seats, np.zeros)
        self._actions = buffer_of(layouts.action_space, layouts.action, actions)
        self._venv: RemoteVectorEnv | None = None

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        rows, infos = self._open().reset(seed=[seed], options=options)
        self.over = False
        self._update(infos)
        return self._read(rows, self.agents), self._read_infos(infos, self.agents)

    def step(self, actions: Mapping[str, Any]) -> Step:
        """Step with the actions of the acting agents.

        Raises:
            VectorMisuse: no episode is running, an acting agent lacks a valid action, or another agent has one.
        """
        if self.over:
            raise VectorMisuse("step: no episode is running; call reset first")
        before = self.agents
        rows, reward, terminated, truncated, infos = self._open().step(self._pack(actions))
        ended = terminated | truncated
        self.over = bool(infos.get("over", ended)[0])
        self._update(infos)
        reported = [agent for agent in self.possible_agents if agent in before or agent in self.agents]
        if "final_obs" in infos:  # absent for one agent, whose row is the last observation
            rows[ended] = infos["final_obs"][ended]

        def each(column: NDArray[Any]) -> dict[str, Any]:
            return {agent: column[self.possible_agents.index(agent)].item() for agent in reported}

        observations, last_infos = self._read(rows, reported), self._read_infos(infos, reported)
        return observations, each(reward), each(terminated), each(truncated), last_infos

    def render(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the session."""
        if self._venv is not None:
            self._venv.close()
            self._venv = None

    @property
    def num_agents(self) -> int:
        """Return the number of living agents."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """Return the number of possible agents."""
        return len(self.possible_agents)

    @property
    def unwrapped(self) -> "RemoteParallelEnv":
        """Return the environment itself, as PettingZoo's wrappers do."""
        return self

    def _open(self) -> "RemoteVectorEnv":
        """Return the vector environment of the session, which the first call opens."""
        from paddock.envs.remote.client.vector import RemoteVectorEnv

        if self._venv is None:
            own: dict[str, Any] = {"autoreset": AutoresetMode.DISABLED, "packed": True, **self._claim}
            self._venv = RemoteVectorEnv(None, 1, self._endpoint, **own)
        return self._venv

    def _update(self, infos: Mapping[str, Any]) -> None:
        alive = self._open().alive & (not self.over)
        self.agents = [a for a, lives in zip(self.possible_agents, alive, strict=True) if lives]
        self.acting = [a for a, acts in zip(self.possible_agents, infos.get("acts", alive), strict=True) if acts]

    def _read(self, rows: NDArray[Any], agents: Sequence[str]) -> dict[str, Any]:
        """Return agents' observations from the environment's rows."""
        seen = buffer_of(self._layouts.observation_space, self._layouts.observation, rows)
        return dict(zip(agents, seen.finals(self._seats(agents)), strict=True))

    def _seats(self, agents: Sequence[str]) -> NDArray[np.intp]:
        return np.array([self.possible_agents.index(agent) for agent in agents], np.intp)

    def _read_infos(self, infos: Mapping[str, Any], agents: Sequence[str]) -> dict[str, dict[str, Any]]:
        each = split_infos({key: value for key, value in infos.items() if key not in BESIDE}, len(self.possible_agents))
        by_agent = {}
        for agent in agents:
            own = each[self.possible_agents.index(agent)]
            last = own.pop("final_info", {})
            last.pop("episode", None)
            by_agent[agent] = own | last
        return by_agent

    def _pack(self, actions: Mapping[str, Any]) -> NDArray[Any]:
        """Return the actions as rows; zeros for agents that do not act."""
        if strange := sorted(set(actions) - set(self.agents)):
            raise VectorMisuse(f"step: got an action for {strange}; living agents are {self.agents}")
        if missing := [agent for agent in self.acting if agent not in actions]:
            raise VectorMisuse(f"step: no action for {missing}; pass one for each of {self.acting}")
        rows = self._actions.array
        rows[:] = np.zeros((), rows.dtype)
        try:
            self._actions.write(self._seats(self.acting), [actions[agent] for agent in self.acting])
        except WriteError as refused:
            agent = self.possible_agents[refused.row]
            what = f"step: the action of {agent} has {refused.cause}; pass one of {self.action_space(agent)}"
            raise VectorMisuse(what) from None
        return rows
