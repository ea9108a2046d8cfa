"""Small environments of our own, in Python."""
