"""Compiled arithmetic of 16-bit floats."""
