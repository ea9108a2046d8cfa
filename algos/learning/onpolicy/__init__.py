"""Learning from rollouts while they are new: what such algorithms share, and the operators of their plans."""
