"""Clipping ranges from statistics, by the method that a recipe names."""
