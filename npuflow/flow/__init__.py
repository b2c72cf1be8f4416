"""The build system: artifacts and stages, keys and stores, one executor on Dask.

Noun: `Stage`.
Public: `stage`, `Artifact`, `Items`, `Recipe`, `Store`, `build`.
Does not know: tensors, networks, targets.
"""
