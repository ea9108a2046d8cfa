"""Learning from rollouts: collectors, returns, losses, learners, normalization, evaluation beside it."""
