"""PettingZoo's own tests, of every world that conf/env offers: all at once, and one agent after another."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from bindings import WORLDS, need
from conftest import env_section

from paddock.envs.spec import EnvSpec

pettingzoo_test = pytest.importorskip("pettingzoo.test", reason="pip install -e '.[multiagent]'")
conversions = pytest.importorskip("pettingzoo.utils.conversions")

CYCLES = {"battle": 3, "multiwalker": 8, "pursuit": 8, "warehouse": 10}  # steps of a world, where each is dear
CYCLES |= {"cooperative_pong": 30, "knights_archers_zombies": 30, "pistonball": 3}
BACK = {"relay", "snake"}  # agents live again under the same name, which PettingZoo forbids


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.slow if one in CYCLES else ()) for one in sorted(WORLDS)])
def offered(request: pytest.FixtureRequest) -> tuple[Callable[[], Any], int, bool]:
    need(request.param)
    section = env_section(request.param)
    assert section.pop("_target_") == "paddock.envs.spec.EnvSpec"
    return EnvSpec(**section).make, CYCLES.get(request.param, 30), request.param in BACK


def test_a_world_is_a_parallel_env(offered: Any) -> None:
    make, cycles, back = offered
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        if back:
            with pytest.raises(AssertionError, match="agent cannot be revived once dead"):
                pettingzoo_test.parallel_api_test(make(), num_cycles=200)
            return
        pettingzoo_test.parallel_api_test(make(), num_cycles=cycles)
    masks = hasattr(make().observation_space, "spaces")
    if not masks:
        pettingzoo_test.parallel_seed_test(make, num_cycles=cycles)


def test_a_world_is_an_aec_env(offered: Any) -> None:
    make, cycles, back = offered
    if back:
        pytest.skip("agents live again, which PettingZoo's turns of one agent after another have no word for")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pettingzoo_test.api_test(conversions.parallel_to_aec(make()), num_cycles=cycles)
        pettingzoo_test.seed_test(lambda: conversions.parallel_to_aec(make()), num_cycles=cycles)
