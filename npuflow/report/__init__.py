"""The report: one self-contained page and the same data as JSON."""
