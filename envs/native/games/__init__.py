"""What the C code is told of games: of MiniGrid's worlds, of our own, and of the sanity suite's tasks."""
