"""`vec=remote`: environments at servers; requires gRPC."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeGuard, Unpack

from paddock.envs.certificates import check_tls
from paddock.envs.errors import ConfigError, install, require
from paddock.envs.frozen import freeze, thaw
from paddock.envs.ranges import POSITIVE, NonNegativeFloat
from paddock.envs.remote.versions import SameVersions
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import VectorEnv
from paddock.envs.vector.recipes import Form, Vec

if TYPE_CHECKING:
    from paddock.envs.remote.client.endpoint import Endpoint


@dataclass(frozen=True, kw_only=True)
class Remote(Vec):
    """Environments at servers, which `python -m paddock.serve` starts."""

    address: str | Sequence[str]
    token_file: str | None
    tls: Mapping[str, str | None]
    wait_s: NonNegativeFloat
    journal_mb: Annotated[float, POSITIVE]
    same_versions: SameVersions
    world: str | None = None
    agents: Sequence[str] | None = None
    seeded_slots = True

    def __post_init__(self) -> None:
        super().__post_init__()
        named = self.agents is None or self.world is not None
        require(named, f"agents={self.agents} needs the name of a joint environment; set world=NAME")
        addresses = (self.address,) if isinstance(self.address, str) else tuple(map(str, self.address))
        require(bool(addresses), "address=[] is empty; set it, such as address=127.0.0.1:3003")
        check_single_server(addresses, self.world)
        require(
            len(addresses) <= self.num_envs,
            f"num_envs={self.num_envs} must be at least {len(addresses)}, one per address",
        )
        object.__setattr__(self, "address", addresses)
        object.__setattr__(self, "tls", freeze(dict(self.tls)))
        object.__setattr__(self, "agents", None if self.agents is None else tuple(self.agents))

    def check(self, spec: EnvSpec) -> None:
        """See `Vec.check`; asks the servers for the environment and their capacity."""
        offers = self.endpoint().offers()
        offers[0].check_serves(spec, self.agents)
        shares = [self.num_envs * k // len(offers) for k in range(len(offers) + 1)]
        for offer, (start, stop) in zip(offers, itertools.pairwise(shares), strict=True):
            offer.check_capacity(stop - start)

    def make(self, spec: EnvSpec, **form: Unpack[Form]) -> VectorEnv:
        """Open sessions at the servers; see `Vec.make`."""
        endpoint = self.endpoint()
        from paddock.envs.remote.client.vector import RemoteVectorEnv

        return RemoteVectorEnv(
            spec,
            self.num_envs,
            endpoint,
            **form,
            journal_mb=self.journal_mb,
            worlds=None if self.world is None else [f"{self.world}/{k}" for k in range(self.num_envs)],
            agents=self.agents,
            groups=self.groups,
        )

    def versions(self, began: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, dict[str, str]]:
        """Return the package versions at each server, by its address.

        Args:
            began: the versions when the run started, which are required unless `same_versions` is none.

        Raises:
            ConfigError: a server refuses, or its versions differ.
            EnvError: a server cannot be reached.
        """
        offers = self.endpoint().offers()
        if began and self.same_versions != "none":
            first, before = next(iter(began.items()))
            for offer in offers:
                offer.check_versions(before, f"when the run began at {first}")
        return {offer.address: offer.versions for offer in offers}

    def endpoint(self) -> "Endpoint":
        """Return the endpoint of the servers."""
        return make_endpoint(self.address, self.token_file, dict(thaw(self.tls)), self.wait_s, self.same_versions)


def is_shared(vec: object) -> TypeGuard[Remote]:
    """Return whether a recipe's environments are shared with other clients."""
    return isinstance(vec, Remote) and vec.world is not None


def check_unshared(vec: object, plays: str) -> None:
    """Raise ConfigError if a recipe's environments are shared with other clients; `plays` says why they cannot be."""
    what = f"vec.world={getattr(vec, 'world', None)}: an agent is controlled by one client, but {plays}"
    require(not is_shared(vec), f"{what}; remove it, or choose an algorithm that trains on rollouts, such as algo=ppo")


def check_single_server(addresses: Sequence[str], world: str | None) -> None:
    """Raise ConfigError if a joint environment is given several servers, at which its clients would not meet."""
    what = f"address={list(addresses)} lists {len(addresses)} servers, but all clients of world={world} must use one"
    require(world is None or len(addresses) == 1, f"{what}; set only its address, or file:PATH that it writes")


def make_endpoint(
    address: str | Sequence[str],
    token_file: str | None,
    tls: Mapping[str, str | None],
    wait_s: float,
    same_versions: SameVersions = "run",
) -> "Endpoint":
    """Return the endpoint of servers; raise ConfigError if gRPC is missing or an address or file is invalid."""
    try:
        from paddock.envs.remote.client.endpoint import Endpoint
        from paddock.envs.remote.security import check_address
    except ImportError as error:
        raise ConfigError(f"environments at a server need {error.name}; {install('remote')}") from error
    addresses = (address,) if isinstance(address, str) else tuple(address)
    for one in addresses:
        check_address(one)
    return Endpoint(addresses, token_file, check_tls(tls, ("cert", "key")), wait_s, same_versions)
