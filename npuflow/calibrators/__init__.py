"""One threshold method per file."""
