"""Thresholds from statistics."""
