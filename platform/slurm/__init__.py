"""Runs as Slurm jobs: submission, execution, and resuming after a requeue."""
