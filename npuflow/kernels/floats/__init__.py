"""Arithmetic of 16-bit floats, exact and compiled."""
