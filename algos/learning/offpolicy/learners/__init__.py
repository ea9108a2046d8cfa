"""What learns from replay: dense networks in C, all others in torch."""
