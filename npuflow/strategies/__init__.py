"""One precision-search strategy per file."""
