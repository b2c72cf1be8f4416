"""One source format per file."""
