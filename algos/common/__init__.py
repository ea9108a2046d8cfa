"""What every algorithm shares: keyed randomness, where time goes, arithmetic by one thread."""
