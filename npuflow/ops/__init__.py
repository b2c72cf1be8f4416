"""Operators, one a file: semantics in floats and integers, iteration space, lowering to commands.

Noun: `Op`.
Public: one class an operator, found by scanning.
Does not know: other operators, plans, targets by name.
"""
