"""Off-policy learning: operators, exploration, settings and state."""
