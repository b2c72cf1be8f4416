"""One accuracy metric per file."""
