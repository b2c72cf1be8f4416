"""What a build compares: reference, program, QDQ model, source model, labelled samples, a board.

Noun: `Score`.
Public: `compare`, `measure`, `Score`, `QdqVerdict`, `RewriteCulprit`.
Does not know: recipes, caches.
"""
