"""Learning algorithms: the middle layer, which may import `envs` but not `platform`."""
