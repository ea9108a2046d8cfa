"""Policies and values: heads, dense networks, and what plays them."""
