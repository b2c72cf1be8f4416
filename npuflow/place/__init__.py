"""Which nodes run on the NPU and which on the host, names of layers, and what the host costs.

Noun: `NodePlacement`.
Public: `place`, `NodePlacement`, `segments`, `names_of`, `host_work`.
Does not know: codes, plans.
"""
