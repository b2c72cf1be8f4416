"""Synthetic stages."""
