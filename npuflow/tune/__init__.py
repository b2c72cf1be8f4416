"""Choices that decide numbers: ranges, widths, corrections, rounding and pruning.

Noun: `Judge`.
Public: `Calibrate`, `Correct`, `Judge`, `Proposal`, `SampleWalk`, `SearchProblem`, `Trial`, `improve`.
Does not know: command words, the simulator, caches.
"""
