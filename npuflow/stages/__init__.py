"""The pipeline, one stage a file; the only place where build system and compiler meet.

Noun: `Stage`.
Public: one function a stage, found by scanning.
Does not know: how stages are scheduled and stored.
"""
