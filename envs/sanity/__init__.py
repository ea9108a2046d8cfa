"""Small tasks of known values, each of which one faculty of an algorithm solves: the sanity suite.

Importing this registers them; the name to give is `env.id=paddock.envs.sanity:paddock/Bandit-v0`. Those whose names begin with
Puffer have the rules of PufferLib 3.0's tasks of these names (pufferlib/ocean/sanity.py), to the constants that its
seeds give.
"""

from typing import Any

import gymnasium

_OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bandit": ("bandit:Bandit", {"arms": 10, "arm": 6, "noise": 0.5, "offset": 0.0}),
    "Squared": ("squared:Squared", {"distance": 3}),
    "Password": ("password:Password", {"password": [1, 0, 1, 1, 0]}),
    "Blend": ("mixing:Blend", {"moves": 4, "zeros": 3}),
    "Copy": ("memory:Copy", {"digits": 2, "delay": 2}),
    "Forget": ("memory:Forget", {"end": 0.25, "longest": 20}),
    "Spaces": ("structured:Spaces", {}),
    "Masked": ("structured:Masked", {"choices": 100}),
    "Cutoff": ("cutoff:Cutoff", {"leave": 2.0, "stay": 0.3, "steps": 5, "terminates": False}),
    "CutoffTwin": ("cutoff:Cutoff", {"leave": 2.0, "stay": 0.3, "steps": 5, "terminates": True}),
    "Aim": ("aim:Aim", {"low": -3.0, "high": 5.0}),
    "Delay": ("delay:Delay", {"delay": 20, "numbers": 8}),
    "PufferBandit": ("bandit:Bandit", {"arms": 10, "arm": 6, "noise": 0.0, "offset": -0.5502344891639495}),
    "PufferPassword": ("password:Password", {"password": [0, 1, 0, 0, 0]}),
    "PufferStochastic": ("mixing:PufferStochastic", {"share": 0.7, "horizon": 100}),
    "PufferMemory": ("memory:PufferMemory", {"digits": 2, "delay": 2}),
    "PufferSpaces": ("structured:PufferSpaces", {}),
}

for _name, (_entry, _kwargs) in _OURS.items():
    gymnasium.register(id=f"paddock/{_name}-v0", entry_point=f"paddock.envs.sanity.{_entry}", kwargs=_kwargs)
