"""Whose policy plays, on what, and filmed how."""
