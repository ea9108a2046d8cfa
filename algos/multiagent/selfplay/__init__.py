"""Players of worlds against each other: matches, ratings, scripted players, opponents of who learns."""
