"""A multi-agent environment at a server as a PettingZoo ParallelEnv; `acting` lists the agents whose turn it is."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError
from paddock.envs.remote.served import Served, read_info
from paddock.envs.spaces.parts import Misfit
from paddock.envs.vector.contract import VectorMisuse
from paddock.envs.vector.remote import check_meeting
from paddock.envs.worlds.roles import Role, SeatRows, narrow, widen
from paddock.envs.worlds.world import Step, Told

if TYPE_CHECKING:
    from paddock.envs.remote.client.vector import RemoteVectorEnv

BESIDE = ("acts", "over", "final_obs", "_final_obs")  # keys that a vector adds to the infos


class RemoteParallelEnv:
    """The world that a server offers; each step is a message there and one back.

    It has the form of PettingZoo's ParallelEnv (Terry et al. 2021, arXiv:2009.14471), which need not be installed.

    Attributes:
        agents: those that live.
        acting: those whose action the next step takes.
        over: whether the world's episode has ended, or none has begun.
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
        *,
        served: Served | None = None,
    ) -> None:
        """Ask a server for its offer; the first reset opens a session.

        Args:
            address: of the server, HOST:PORT or unix:PATH; of several, others stand in for one that goes later, but
                for that of a joint world, at which its clients meet.
            token_file, tls, wait_s, served: see `RemoteEnv`.
            world: the name of a joint environment, in which other clients have the other agents; None: it is not joint.
            agents: whose actions this client chooses there.

        Raises:
            ConfigError: gRPC is not installed, the server refuses or serves an environment of one agent, there are no
                such agents, or several servers are named for a joint environment.
            EnvError: it cannot be reached.
        """
        self.metadata: dict[str, Any] = {"render_modes": [], "name": "remote"}
        check_meeting([address] if isinstance(address, str) else address, world)
        self._served = served or Served(address, token_file, tls, wait_s)
        self.offer = self._served.offer
        if self.offer.seats == 1:
            id = self.offer.environment["id"]
            raise ConfigError(f"vec.address={address} serves {id}, an environment of one agent; take a RemoteEnv")
        layouts = self.offer.layouts()
        self._layouts = layouts if agents is None else layouts.pick(self.offer.order(agents))
        self._served.claim = {} if world is None else {"worlds": [world], "agents": self._layouts.agents}
        if world is None and agents is not None:
            raise ConfigError(f"agents={agents} are seats of a joint world; name one by world, or leave agents out")
        self.possible_agents = list(self._layouts.agents)
        self._roles = self.offer.pick_roles(self.possible_agents)
        self.agents: list[str] = []
        self.acting: list[str] = []
        self.over = True
        # One each: PettingZoo's users seed them.
        self._spaces = {
            agent: (deepcopy(role.observation_space), deepcopy(role.action_space))
            for role in self._roles
            for agent in role.agents
        }

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Told, Told]:
        """Start an episode."""
        venv = self._served.open()
        rows, infos = venv.reset(seed=[seed], options=options)
        self.over = False
        self._look(venv, infos)
        return self._read(rows, self.agents), self._read_infos(infos, self.agents)

    def step(self, actions: Mapping[str, Any]) -> Step:
        """Step by the actions of the acting agents.

        Raises:
            VectorMisuse: no episode has begun, an agent that acts has no action or one that is not of its space, or
                an agent that does not act has one.
        """
        venv, before = self._served.begun(), self.agents
        rows, reward, terminated, truncated, infos = venv.step(self._pack(actions))
        self._look(venv, infos)
        self.over = bool(infos["over"][0])
        ended = {a: k for k, a in enumerate(self.possible_agents) if terminated[k] or truncated[k]}
        told = [agent for agent in self.possible_agents if agent in before or agent in self.agents]
        observations = self._read(rows, [agent for agent in told if agent not in ended])
        if ended:
            mine = list(ended.values())
            last = rows.copy()
            last[mine] = infos["final_obs"][mine]
            observations |= self._read(last, list(ended))

        def each(column: NDArray[Any]) -> dict[str, Any]:
            return {agent: column[self.possible_agents.index(agent)].item() for agent in told}

        return observations, each(reward), each(terminated), each(truncated), self._read_infos(infos, told)

    def signal(self, key: str, value: Any) -> None:
        """Have the environment's `receive_signal(key, value)` called before its next reset or step.

        Raises:
            VectorMisuse: it has none, or the value is no plain data of at most 64 kB.
        """
        self._served.open().signal(key, value)

    def close(self) -> None:
        """Close the session."""
        self._served.close()

    @property
    def num_agents(self) -> int:
        """How many live."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """How many there may be."""
        return len(self.possible_agents)

    @property
    def unwrapped(self) -> "RemoteParallelEnv":
        """The environment itself, as PettingZoo has it of wrappers."""
        return self

    def _look(self, venv: "RemoteVectorEnv", infos: Mapping[str, Any]) -> None:
        """Update the living and the acting agents."""
        self.agents = [a for a, alive in zip(self.possible_agents, venv.alive, strict=True) if alive]
        self.acting = [a for a, acts in zip(self.possible_agents, infos["acts"], strict=True) if acts]

    def _read(self, rows: NDArray[Any], agents: Sequence[str]) -> dict[str, Any]:
        """Return these agents' observations from the world's rows."""
        found: dict[str, Any] = {}
        for role in self._roles:
            seats = [k for k, agent in enumerate(self.possible_agents) if agent in role.agents and agent in agents]
            if not seats:
                continue
            several = isinstance(self._layouts.observation, SeatRows)
            own = narrow(rows[seats], role.observations) if several else rows[seats]
            read = role.observations.reader(own)
            found |= {self.possible_agents[seat]: read(k) for k, seat in enumerate(seats)}
        return {agent: found[agent] for agent in agents}

    def _read_infos(self, infos: Mapping[str, Any], agents: Sequence[str]) -> dict[str, dict[str, Any]]:
        said = {key: value for key, value in infos.items() if key not in BESIDE}
        told = {}
        for agent in agents:
            own = read_info(said, self.possible_agents.index(agent))
            last = own.pop("final_info", {})
            last.pop("episode", None)
            told[agent] = own | last
        return told

    def _pack(self, actions: Mapping[str, Any]) -> NDArray[Any]:
        """Return the world's actions as rows."""
        if strange := sorted(set(actions) - set(self.agents)):
            raise VectorMisuse(f"step: an action is given for {strange}, and {self.agents} live")
        if missing := [agent for agent in self.acting if agent not in actions]:
            raise VectorMisuse(f"step: {missing} act and have no action; give one for each of {self.acting}")
        own = {agent: actions[agent] for agent in self.acting}
        parts = [_pack_role(role, own) for role in self._roles]
        if not isinstance(self._layouts.action, SeatRows):
            return parts[0]
        row = self._layouts.action.row
        rows = np.zeros(self._layouts.seats, row)
        for role, part in zip(self._roles, parts, strict=True):
            rows[list(role.seats)] = widen(part, role.actions, row)
        return rows


def _pack_role(role: Role, actions: Mapping[str, Any]) -> NDArray[Any]:
    """Return rows of a role's actions; zeros for agents that have none."""
    rows = role.actions.zeros(len(role.seats))
    write = role.actions.writer(rows)
    for k, agent in enumerate(role.agents):
        if agent in actions:
            try:
                write(k, actions[agent])
            except Misfit as misfit:
                allowed = f"take one of {role.action_space}"
                raise VectorMisuse(f"step: the action of {agent} has {misfit}; {allowed}") from None
    return rows
