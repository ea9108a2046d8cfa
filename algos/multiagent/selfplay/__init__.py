"""Self-play: matches, ratings, scripted players, matchups and opponent pools."""
