"""Checks of the installation, environments, algorithms and servers."""
