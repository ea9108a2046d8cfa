"""Run folders: checkpoints, journals, states, and the training loop that writes them."""
