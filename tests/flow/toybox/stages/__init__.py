"""Toy stages."""
