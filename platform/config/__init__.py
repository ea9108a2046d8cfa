"""YAML in, objects out: composition, checks, building, help."""
