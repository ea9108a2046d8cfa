"""Environments of others that need something of ours to be keyed, to be whole, or to be Gymnasium's at all."""
