"""The schedule of a plan: which jobs run on which queue of which core, what each reads and writes, when.

Noun: `Schedule`.
Public: `Machine`, `FusionGroup`, `Frame`, `Layer`, `TileChoice`, `Job`.
Does not know: who searches for a plan, command words.
"""
