"""HTML reports: page, sections, plots and statistics."""
