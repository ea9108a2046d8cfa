"""POET on poles that fall, by settings for several test files."""

from typing import Any

from paddock.algos.pool.serial import SerialPool
from paddock.envs.tasks.poles import Poles
from paddock.envs.vector import Serial

POLES = Poles(start=0.5, step=0.4, min=0.05, max=3.0, max_episode_steps=60)


def settings(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "family": POLES,
        "vec": Serial(num_envs=4),
        "pool": SerialPool(),
        "seed": 1,
        "population": 8,
        "sigma": 0.1,
        "sigma_decay": 0.99,
        "sigma_floor": 0.01,
        "learning_rate": 0.05,
        "learning_rate_decay": 0.99,
        "learning_rate_floor": 0.01,
        "weight_decay": 0.01,
        "hidden_sizes": (4,),
        "activation": "tanh",
        "initial_std": 0.1,
        "episode_cap": None,
        "same_ground": True,
        "eval_episodes": 3,
        "eval_max_steps": 100_000,
        "pairs_per_task": 1,
        "transfer_every": 4,
        "transfer_test": "enhanced",
        "transfer_window": 5,
        "transfer_proposal": "adam",
        "reproduce_every": 6,
        "reproduce_score": 20.0,
        "max_children": 4,
        "max_admitted": 1,
        "max_niches": 2,
        "criterion_low": 5.0,
        "criterion_high": 59.0,
        "child_proposal": "sgd",
        "novelty": "pata_ec",
        "neighbours": 2,
        "solved_score": 50.0,
    }
    return given | changes
