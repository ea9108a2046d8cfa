"""Pictures of what some algorithms tell beside numbers."""
