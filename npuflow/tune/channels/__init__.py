"""Whole channels removed from a float network."""
