"""Who runs in scripts/bench/native.py of JAX's environments: gymnax and Pgx, on the processor.

As learners in JAX step them: N environments for STEPS steps in one compiled call, which gives all observations, rewards
and ends; episodes begin again by themselves.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from scripts.bench.contenders.vectors import Advance, Row, Setting

STEPS = 64  # of a call
PGX = {"connect_four_v3": "connect_four", "tictactoe_v3": "tic_tac_toe"}


def scanned(
    step: Callable[[Any, Any, Any], tuple[Any, Any]], state: Any, choose: Callable[[Any], Any], N: int
) -> Advance:
    """Return what takes STEPS steps of N environments.

    Args:
        step: of all of them, given their state, actions [N, ...] and keys [N]; their state, and what they give.
        choose: a random action of a key.
    """
    import jax

    actions = jax.vmap(jax.vmap(choose))(jax.random.split(jax.random.key(1), (STEPS, N)))

    @jax.jit
    def play(state: Any, key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, (STEPS, N))
        return jax.lax.scan(lambda state, given: step(state, *given), state, (actions, keys))

    at, key = state, jax.random.key(2)

    def advance() -> int:
        nonlocal at, key
        key, own = jax.random.split(key)
        at, given = play(at, own)
        jax.block_until_ready(given)
        return STEPS * N

    return advance


def gymnax(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    import gymnax as library
    import jax

    N = setting["num_envs"]
    env, parameters = library.make(row.spec.id)
    _, state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), N), parameters)

    def step(state: Any, action: Any, keys: Any) -> tuple[Any, Any]:
        seen, state, *given, _ = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, parameters)
        return state, (seen, *given)

    return scanned(step, state, env.action_space(parameters).sample, N)


def pgx(row: Row, setting: Setting, stack: ExitStack) -> Advance:
    """Turn by turn, by any actions, of which those that are not allowed end a game too."""
    import jax
    import pgx as library
    from pgx.experimental import auto_reset

    N = setting["num_envs"]
    env = library.make(PGX[row.spec.id.rpartition(".")[2].partition(":")[0]])
    one = auto_reset(env.step, env.init)

    def step(state: Any, action: Any, keys: Any) -> tuple[Any, Any]:
        state = jax.vmap(one)(state, action, keys)
        return state, (state.observation, state.legal_action_mask, state.rewards, state.terminated)

    state = jax.vmap(env.init)(jax.random.split(jax.random.key(0), N))
    return scanned(step, state, lambda key: jax.random.randint(key, (), 0, env.num_actions), N)
