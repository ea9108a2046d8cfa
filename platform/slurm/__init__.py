"""Runs as Slurm jobs: submitted, carried through, and gone on with after a requeue."""
