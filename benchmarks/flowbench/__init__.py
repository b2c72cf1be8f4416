"""Synthetic stages for measuring the build system itself."""
