"""Populations: perturbation, ranks and updates, niches, reproduction, and the tasks that a pool gets of them."""
