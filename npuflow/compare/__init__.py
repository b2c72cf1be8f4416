"""Two sets of tensors compared: how far they are apart, and where they first differ.

Noun: `Comparison`.
Public: `Comparison`, `Difference`, `difference`, `unequal`, `first`, `compared`, `first_prefix`.
Does not know: how the tensors were computed. What decibels are: `ir/noise.py`.
"""
