"""Off-policy learners: dense networks in C, all others in torch."""
