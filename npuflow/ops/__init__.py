"""One operator per file."""
