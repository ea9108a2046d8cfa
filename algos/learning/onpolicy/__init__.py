"""On-policy learning: shared settings and state, minibatches and normalization."""
