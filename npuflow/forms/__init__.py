"""Forms, one a file, named for an arithmetic and an operator's `form`: how it computes in floats or blocks.

Noun: `OperatorForm`.
Public: one class a form, found by scanning.
Does not know: other forms, plans, targets by name.
"""
