"""Numerics, target description and instruction set of a neural processing unit.

Noun: `Target`.
Public: `Target`, `Numerics`, `Command`, `Opcode`, `Region`.
Does not know: graphs, operators, the name of any target.
"""
