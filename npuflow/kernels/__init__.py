"""What commands compute, on byte arrays: exact arithmetic and compiled kernels.

Noun: `Simulated`.
Public: `SimulatedMemory`, `Bench`, `Simulated`.
Does not know: graphs, plans, the clock.
"""
