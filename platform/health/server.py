"""Status of an environment server, and the doctor's check of it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from paddock.envs.errors import ConfigError, PaddockError
from paddock.envs.remote.client.endpoint import CALL_S, ConnectionLost, Endpoint
from paddock.envs.remote.versions import describe_others, read_versions

from .installed import Finding


def ask(endpoint: Endpoint) -> dict[str, Any]:
    """Return a server's statistics and versions, with the duration of the call as `round_trip_s`."""
    try:
        offer = endpoint.describe(endpoint.addresses[0])
        before = time.perf_counter()
        stats = endpoint.call(endpoint.addresses[0], "Stats", {}, CALL_S)
    except ConnectionLost as lost:
        remedy = (
            "start it with python -m paddock.serve env=NAME serve.address=..., or set vec.tls.ca=FILE if it uses TLS"
        )
        raise ConfigError(f"{lost}; {remedy}") from None
    return {**stats, "round_trip_s": time.perf_counter() - before, "versions": offer.versions}


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
