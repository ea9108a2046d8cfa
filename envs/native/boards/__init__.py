"""What the C code is told of worlds: environments of several agents."""
