"""Two sets of tensors compared.

Noun: `Difference`.
Public: `difference`, `Difference`.
Does not know: how the tensors were computed.
"""
