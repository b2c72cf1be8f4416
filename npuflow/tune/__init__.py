"""Choices that decide numbers: ranges, widths, corrections, rounding and pruning."""
