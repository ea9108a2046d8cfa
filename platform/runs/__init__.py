"""What is on disk of a run: its folder, checkpoints, journals, where it stands; and the loop that writes them."""
