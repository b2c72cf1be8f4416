"""Rewrite rules applied to a graph until none applies.

Noun: `Rewritten`.
Public: `rewrite`, `Rewritten`.
Does not know: single rules.
"""
