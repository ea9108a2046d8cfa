"""Where metrics go: the journals, the console, and mirrors that may fail."""
