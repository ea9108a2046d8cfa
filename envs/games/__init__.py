"""Games of our own, in plain Python: what serial vectors play, and what the C code is held to, to the bit.

Importing this registers them; the name to give is `env.id=paddock.envs.games:paddock/Game2048-v0`.
"""

import gymnasium

_OURS = {  # entry point, and steps of an episode at the most
    "Game2048": ("game_2048:Game2048", 10_000),
    "Breakout": ("breakout:Breakout", 10_000),
    "Pong": ("pong:Pong", 10_000),
}

for _name, (_entry, _steps) in _OURS.items():
    gymnasium.register(id=f"paddock/{_name}-v0", entry_point=f"paddock.envs.games.{_entry}", max_episode_steps=_steps)
