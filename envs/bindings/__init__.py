"""Adapters and fixes for third-party environments: seeding, leaking state, and Gymnasium's API."""
