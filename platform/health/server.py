"""The doctor's check of environment servers."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from paddock.envs.errors import PaddockError
from paddock.envs.remote.versions import describe_others, read_versions

from .installed import Finding


def check_server(recipe: Any) -> Iterator[tuple[str, Finding]]:
    """Check that environment servers answer, accept this process, and have the same package versions."""
    for address in recipe.address:
        endpoint, before = replace(recipe, address=address, wait_s=0.0).endpoint(), time.perf_counter()
        try:
            [offer] = endpoint.offers()
        except PaddockError as error:
            yield "server", Finding("FAIL", str(error))
            continue
        found = f"{address}: {offer.environment['id']}, {offer.free} of {offer.capacity} environments free"
        text = f"{found}, answers in {1000 * (time.perf_counter() - before):.1f} ms"
        if others := describe_others(offer.versions, read_versions()):
            yield "server", Finding("warn", f"{text}; {others}", "results may differ; install the same versions")
        elif offer.free < recipe.num_envs:
            yield "server", Finding("warn", text, f"vec.num_envs={recipe.num_envs} will wait until others finish")
        else:
            yield "server", Finding("ok", text)
