"""The schedule of a plan: which jobs run on which queue of which core, what each reads and writes, when.

Noun: `Schedule`.
Public: `Machine`, `Group`, `Frame`, `Layer`, `Choice`, `Job`.
Does not know: who searches for a plan, command words.
"""
