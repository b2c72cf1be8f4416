"""Choices that decide numbers: ranges, widths, corrections, rounding and pruning.

Noun: `Trial`.
Public: `Calibrate`, `Correct`, `RoundTable`, `SearchProblem`, `Trial`.
Does not know: command words, the simulator, caches.
"""
