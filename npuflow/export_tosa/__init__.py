"""The quantised network as a TOSA file, integer profile: the program's integers, bit for bit.

Noun: TOSA file.
Public: `to_tosa`, `written`.
Does not know: plans, programs.
"""
