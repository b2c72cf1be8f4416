"""Choices that decide numbers: ranges, widths, corrections, rounding and pruning.

Noun: `Judge`.
Public: `Calibrate`, `Correct`, `Judge`, `Proposal`, `RoundTable`, `SampleWalk`, `SearchProblem`, `Trial`, `improve`.
Does not know: command words, the simulator, caches.
"""
