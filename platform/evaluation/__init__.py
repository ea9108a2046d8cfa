"""Evaluation of trained policies: target, environment, opponents and video."""
