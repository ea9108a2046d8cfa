"""The page of a report, its sections, plots and statistics."""
