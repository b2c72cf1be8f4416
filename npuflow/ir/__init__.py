"""The network as data: types, graph, operator contract, iteration space.

Noun: `Graph`.
Public: `Graph`, `Node`, `Op`, `OpContext`, `TensorType`, `QuantType`.
Does not know: single operators, file formats, plans.
"""
