"""Population-based methods: perturbation, ranking and updates, niches, reproduction, and their pool tasks."""
