"""Optuna and grids under --multirun: studies, trials, and where their runs go."""
