"""What a server of environments is at, in a few lines, and what the doctor says of it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from paddock.envs.errors import ConfigError, PaddockError, nearest, require
from paddock.envs.remote.client.endpoint import CALL_S, ConnectionLost, Endpoint
from paddock.envs.remote.versions import describe_others, read_versions
from paddock.envs.vector.remote import make_endpoint

from .installed import Finding

KEYS = ("token_file", "tls.ca", "tls.cert", "tls.key")


def read_status(arguments: Sequence[str]) -> dict[str, Any]:
    """Return what the server says of itself that the arguments name.

    Raises:
        ConfigError: an argument is wrong, or there is no such server.
    """
    addresses = [argument for argument in arguments if "=" not in argument]
    given = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    require(len(addresses) == 1, f"{len(addresses)} addresses are given, and one server is asked; see --help")
    for key in given:
        require(key in KEYS, f"{key} is not a key of status; {nearest(key, KEYS)}")
    tls = {key.removeprefix("tls."): value for key, value in given.items() if key.startswith("tls.")}
    return ask(make_endpoint(addresses[0], given.get("token_file"), tls, 0.0))


def ask(endpoint: Endpoint) -> dict[str, Any]:
    """Return what a server says of itself, and how long that took: `round_trip_s`.

    Raises:
        ConfigError: there is none.
    """
    try:
        offer = endpoint.describe(endpoint.addresses[0])
        before = time.perf_counter()
        told = endpoint.call(endpoint.addresses[0], "Stats", {}, CALL_S)
    except ConnectionLost as lost:
        remedy = "start it: python -m paddock.serve env=NAME serve.address=..., or name tls.ca=FILE if it has TLS"
        raise ConfigError(f"{lost}; {remedy}") from None
    return {**told, "round_trip_s": time.perf_counter() - before, "versions": offer.versions}


def describe_server(told: dict[str, Any]) -> Iterator[str]:
    """Return lines for people."""
    end = ", which is going" if told["going"] else ""
    yield f"{told['environment']} on vec={told['vec']}, up for {told['up_s']:.0f} s{end}"
    yield f"{told['rows']} of {told['capacity']} environments in {len(told['sessions'])} sessions"
    for one in told["sessions"]:
        yield (
            f"  {one['envs']:5} environments {one['steps']:12,} steps  {one['attached']} streams, "
            f"heard of {one['silent_s']:.0f} s ago"
        )
    yield ", ".join(f"{name} {version}" for name, version in told["versions"].items())


def check_server(recipe: Any) -> Iterator[tuple[str, Finding]]:
    """Servers of environments are there, let this process in, and have the packages that it has.

    Args:
        recipe: what `build` makes of the section vec.
    """
    for address in recipe.address:
        try:
            told = ask(replace(recipe, address=address, wait_s=0.0).endpoint())
        except PaddockError as error:
            yield "server", Finding("FAIL", str(error))
            continue
        free = told["capacity"] - told["rows"]
        found = f"{address}: {told['environment']}, {free} of {told['capacity']} environments free"
        text = f"{found}, {1000 * told['round_trip_s']:.1f} ms there and back"
        if others := describe_others(told["versions"], read_versions()):
            yield "server", Finding("warn", f"{text}; {others}", "numbers may differ; install the same")
        elif free < recipe.num_envs:
            yield "server", Finding("warn", text, f"vec.num_envs={recipe.num_envs} will wait for others to end")
        else:
            yield "server", Finding("ok", text)
