"""Learning from rollouts: collectors, replay, returns, learners, normalization and evaluation."""
