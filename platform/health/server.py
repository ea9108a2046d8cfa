"""Status of an environment server, and the doctor's check of it."""

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
    """Return the status of the server that the arguments name."""
    addresses = [argument for argument in arguments if "=" not in argument]
    given = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    require(len(addresses) == 1, f"status takes one address, got {len(addresses)}; see --help")
    for key in given:
        require(key in KEYS, f"{key} is not a key of status; {nearest(key, KEYS)}")
    tls = {key.removeprefix("tls."): value for key, value in given.items() if key.startswith("tls.")}
    return ask(make_endpoint(addresses[0], given.get("token_file"), tls, 0.0))


def ask(endpoint: Endpoint) -> dict[str, Any]:
    """Return a server's statistics and versions, with the duration of the call as `round_trip_s`."""
    try:
        offer = endpoint.describe(endpoint.addresses[0])
        before = time.perf_counter()
        stats = endpoint.call(endpoint.addresses[0], "Stats", {}, CALL_S)
    except ConnectionLost as lost:
        remedy = "start it with python -m paddock.serve env=NAME serve.address=..., or add tls.ca=FILE if it uses TLS"
        raise ConfigError(f"{lost}; {remedy}") from None
    return {**stats, "round_trip_s": time.perf_counter() - before, "versions": offer.versions}


def describe_server(stats: dict[str, Any]) -> Iterator[str]:
    """Yield a server's statistics as lines of text."""
    end = ", shutting down" if stats["going"] else ""
    yield f"{stats['environment']} on vec={stats['vec']}, up for {stats['up_s']:.0f} s{end}"
    yield f"{stats['rows']} of {stats['capacity']} environments in {len(stats['sessions'])} sessions"
    for one in stats["sessions"]:
        yield (
            f"  {one['envs']:5} environments {one['steps']:12,} steps  {one['attached']} streams, "
            f"last message {one['silent_s']:.0f} s ago"
        )
    yield ", ".join(f"{name} {version}" for name, version in stats["versions"].items())


def check_server(recipe: Any) -> Iterator[tuple[str, Finding]]:
    """Check that environment servers answer, accept this process, and have the same package versions."""
    for address in recipe.address:
        try:
            stats = ask(replace(recipe, address=address, wait_s=0.0).endpoint())
        except PaddockError as error:
            yield "server", Finding("FAIL", str(error))
            continue
        free = stats["capacity"] - stats["rows"]
        found = f"{address}: {stats['environment']}, {free} of {stats['capacity']} environments free"
        text = f"{found}, {1000 * stats['round_trip_s']:.1f} ms round trip"
        if others := describe_others(stats["versions"], read_versions()):
            yield "server", Finding("warn", f"{text}; {others}", "results may differ; install the same versions")
        elif free < recipe.num_envs:
            yield "server", Finding("warn", text, f"vec.num_envs={recipe.num_envs} will wait until others finish")
        else:
            yield "server", Finding("ok", text)
