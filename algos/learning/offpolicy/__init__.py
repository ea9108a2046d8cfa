"""Learning from replay: what learns, and how it explores."""
