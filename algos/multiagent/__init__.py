"""Multi-agent training: policies per role, self-play, leagues and AEC transitions."""
