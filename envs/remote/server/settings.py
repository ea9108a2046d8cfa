"""Settings of a server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from paddock.envs.ranges import POSITIVE, Range, check_fields


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Address, access and capacity of a server."""

    address: str
    address_file: str | None
    token_file: str | None
    tls: Mapping[str, str | None]
    insecure: bool
    max_sessions: Annotated[int, Range("must be between 1 and 1000", low=1, high=1000)]
    lease_s: Annotated[float, POSITIVE]
    drain_s: Annotated[float, Range("must be between 0 and 86400, a day", low=0, high=86400)]
    infos: Literal["all", "none"]

    def __post_init__(self) -> None:
        check_fields(self)
