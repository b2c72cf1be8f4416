"""Forms, one a file: how operators compute in floats or blocks.

Noun: `OperatorForm`.
Public: one class a form, found by scanning.
Does not know: other forms, plans, targets by name.
"""
