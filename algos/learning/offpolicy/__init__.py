"""Learning from replay: operators, exploration, settings and state; `learners` has what learns."""
