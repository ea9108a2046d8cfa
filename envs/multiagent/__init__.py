"""Multi-agent environments behind one interface, `MultiAgentEnv`, whatever their API."""
