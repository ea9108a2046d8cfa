"""Environments: what makes experience. The ground floor, which imports nothing else of the project."""
