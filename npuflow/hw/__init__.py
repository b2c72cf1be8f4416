"""Numerics, target description, instruction set and cost of a neural processing unit."""
