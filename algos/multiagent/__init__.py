"""Several agents in one environment: what single-agent code does not have to know."""
