"""Compiled convolutions and matrix products of integers."""
