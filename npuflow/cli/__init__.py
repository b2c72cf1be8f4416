"""The command line: one verb per file; the only place that prints or exits."""
